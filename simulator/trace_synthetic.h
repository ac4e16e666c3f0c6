/* trace_synthetic: requests that come by a law, with lengths by a law or those of a trace's rows.
 * The law is a text, "NAME:key=value,…":
 *
 *   poisson:rate=5,…          gaps are exponential, 5 requests a second on average
 *   gamma:rate=5,cv=2,…       gaps with that coefficient of variation: above 1 they come in bursts
 *   onoff:rate=5,on=10,off=20,…   as poisson for 10 s, then nothing for 20 s, again and again
 *
 * and seconds=N, requests=N or both (which ends it); prompt=LENGTHS and output=LENGTHS, or
 * lengths=FILE, of which each request has the two lengths of a row drawn at random; seed=N.
 * LENGTHS: fixed:N, uniform:LEAST:MOST, lognormal:MEDIAN:SIGMA. The same text and seed give the
 * same requests. Of a FILE at most a million rows are kept, each row of it with the same chance. A
 * bad row of it ends the reading or is left out, as of any trace. */
#ifndef SIMULATOR_TRACE_SYNTHETIC_H
#define SIMULATOR_TRACE_SYNTHETIC_H

#include "simulator/trace.h"

struct trace_synthetic;

/* Whether the text is a law, and not the name of a file. */
bool trace_synthetic_is(const char *text);

/* `seed`: where the text names none; `skip`: of bad rows. The error names the key and what was
 * wanted. */
enum status trace_synthetic_open(const char *text, uint64_t seed, bool skip,
                                 struct trace_synthetic **synthetic_out, struct error *error);
void trace_synthetic_close(struct trace_synthetic *synthetic); /* NULL is fine. */

/* Rows of its FILE that were left out; *why_out: why the first was, "" if none was. */
uint64_t trace_synthetic_skipped(const struct trace_synthetic *synthetic, const char **why_out);

/* ST_NOT_FOUND after the last. `line` is one more than `id`. */
enum status trace_synthetic_next(struct trace_synthetic *synthetic, struct trace_row *row_out);

#endif
