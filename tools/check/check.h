/* check: the subcommand `cleave check`: finds what will fail with a config before it does. main.c
 * calls check_main on the main thread. machines.c checks machines and other hosts, server/serve.h
 * what a gateway needs. It starts nothing and changes no file. */
#ifndef TOOLS_CHECK_CHECK_H
#define TOOLS_CHECK_CHECK_H

#include "server/serve.h"

/* The subcommand. Returns the exit status: 0 = no error was found, 1 = errors, 2 = wrong options. */
int check_main(int argc, char **argv);

/* --- machines.c --- */

/* What to check about the machines of a config. */
struct check_machines {
    const struct config *config;
    int machine; /* The index of one machine, as it starts on this host; -1 = as the gateway does. */
    bool deep;   /* Open devices, and connect to other machines and to etcd. */
    uint64_t model_bytes; /* Size of the model's files; 0 = unknown. */
};

/* Checks devices, threads, memory and addresses of the machines of this host, and the addresses of
 * the others. */
void check_machines(const struct check_machines *check, const struct check_report *report);

#endif
