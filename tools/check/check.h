/* check: the subcommand `cleave check`. It finds mistakes in a config, and what is missing on this
 * host, before a gateway or a machine is started. main.c calls check_main on the main thread. The
 * subcommand keeps no state, leaves no port open and changes no file. */
#ifndef TOOLS_CHECK_CHECK_H
#define TOOLS_CHECK_CHECK_H

#include "server/serve.h"

/* Runs the subcommand; argv[0] is its name. Returns the exit status: 0 = no error was found, or an
 * option such as --schema or --help only printed; 1 = errors were found, or another failure; 2 =
 * wrong options, or --machine names no machine of the config. */
int check_main(int argc, char **argv);

/* --- machines.c --- */

struct check_machines_options {
    const struct config *config;
    /* Index of the machine that this host runs; -1 = this host runs the machines that the gateway
     * starts (config_machine.local). */
    int machine_index;
    bool is_deep; /* Also open devices, and connect to machines, stage processes and etcd. */
    struct config_model_bytes files; /* If files.model is 0, the memory is not checked. */
};

/* Checks devices, threads and addresses for the machines that this host runs, and host memory for
 * those of them that compute on the CPU. Checks that the addresses of their stage processes, of
 * other machines and of etcd can be resolved; if is_deep, also that they accept connections. Passes
 * the results to report->say. */
void check_machines(const struct check_machines_options *options,
                    const struct check_report *report);

/* Returns true if the own process of the machine with this index runs on this host. */
bool check_machine_is_here(const struct check_machines_options *options, uint32_t index);

/* --- weights.c --- */

/* Checks that the stages of the machines that this host runs fit the model's layers; if is_deep,
 * also that the files of the model and of the draft model have all tensors that these machines
 * load, with the right shapes. Does nothing if files.model is 0. Passes the results to
 * report->say. */
void check_weights(const struct check_machines_options *options, const struct check_report *report);

#endif
