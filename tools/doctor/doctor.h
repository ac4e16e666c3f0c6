/* doctor: the subcommand `cleave doctor`. It checks and measures what this host offers to cleave,
 * and judges whether the host can serve. main.c calls doctor_main on the main thread. This part
 * owns the report, changes no setting of the host, reads no config and loads no model. */
#ifndef TOOLS_DOCTOR_DOCTOR_H
#define TOOLS_DOCTOR_DOCTOR_H

/* Runs the subcommand; argv[0] is its name. Prints the report to standard output. Returns the exit
 * status: 0 = the host can serve, or an option such as --help only printed; 1 = the host cannot
 * serve, or the JSON could not be written; 2 = wrong options. */
int doctor_main(int argc, char **argv);

#endif
