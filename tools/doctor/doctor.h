/* doctor: the command `cleave doctor`: shows what this host offers to cleave, with measurements of
 * a few seconds, and whether it can serve. Changes nothing. Called by main.c on the main thread. */
#ifndef TOOLS_DOCTOR_DOCTOR_H
#define TOOLS_DOCTOR_DOCTOR_H

/* `cleave doctor [--json]`. Returns the exit status: 0 = the host can serve; 1 = it cannot, or the
 * JSON could not be written; 2 = wrong options. */
int doctor_main(int argc, char **argv);

#endif
