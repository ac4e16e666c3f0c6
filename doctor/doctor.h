/* doctor: `cleave doctor`: what this computer has for cleave, measured for a few seconds, and
 * whether it can serve. It changes nothing. */
#ifndef DOCTOR_DOCTOR_H
#define DOCTOR_DOCTOR_H

/* `cleave doctor [--json]`. 0: it can serve, 1: it cannot, 2: the command line is wrong. */
int doctor_main(int argc, char **argv);

#endif
