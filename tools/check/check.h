/* check: the subcommand `cleave check`: finds the mistakes in a config, and what is missing on this
 * host, before a gateway or a machine is started. main.c calls check_main on the main thread.
 * check.c reads the config and prints the results. machines.c checks devices, memory and addresses;
 * the functions of server/serve.h check the files that a gateway or a machine needs. It starts no
 * process, keeps no port open and changes no file. */
#ifndef TOOLS_CHECK_CHECK_H
#define TOOLS_CHECK_CHECK_H

#include "server/serve.h"

/* Runs the subcommand; argv[0] is its name. With --schema or --keys-schema it prints a JSON Schema
 * instead. Returns the exit status: 0 = no error was found, or the schema was printed; 2 = wrong
 * options, or --machine names no machine of the config; 1 = errors were found, or another
 * failure. */
int check_main(int argc, char **argv);

/* --- machines.c --- */

struct check_machines_options {
    const struct config *config;
    /* Index of the machine that this host runs; -1 = this host runs the machines that the gateway
     * starts (config_machine.local). */
    int machine_index;
    bool is_deep; /* Also open devices, and connect to other machines and to etcd. */
    /* Sizes of the model's files (serve_check). 0 = not known: memory is not checked. */
    struct config_model_bytes files;
};

/* Checks devices, threads and addresses of the machines that this host runs, and the memory of the
 * host for machines on the CPU. Checks that the names of the other machines, of stages and of etcd
 * can be resolved; if is_deep, also that they accept connections. Calls report->say with each
 * result. */
void check_machines(const struct check_machines_options *options,
                    const struct check_report *report);

#endif
