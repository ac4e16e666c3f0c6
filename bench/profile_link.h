/* profile_link: how fast writes go between two processes of this computer, as UCX chooses to carry
 * them and over TCP: what KV and activations take from machine to machine. Starts a child for each;
 * to be called before the process has threads. */
#ifndef BENCH_PROFILE_LINK_H
#define BENCH_PROFILE_LINK_H

#include "bench/profile_device.h"

/* Adds to p->links. seconds: for all of them. */
enum status profile_links_measure(struct profile *p, bool quick, double seconds,
                                  profile_progress_call progress, void *self, struct error *error);

#endif
