/* doctor: the command `cleave doctor`. It shows what this host offers to cleave, with measurements
 * of a few seconds, and judges whether the host can serve. main.c calls it on the main thread;
 * checks that can hang run in processes of their own (probe.h). It changes no setting of the host,
 * reads no config and loads no model. */
#ifndef TOOLS_DOCTOR_DOCTOR_H
#define TOOLS_DOCTOR_DOCTOR_H

/* `cleave doctor [--json] [--timeout-s N]`; argv[0] is the subcommand's name. Prints the report to
 * standard output. Returns the exit status: 0 = the host can serve; 1 = it cannot, or the JSON
 * could not be written; 2 = wrong options. */
int doctor_main(int argc, char **argv);

#endif
