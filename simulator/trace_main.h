/* trace_main: `cleave trace`, which describes a trace: count, rate and active tokens over time,
 * distributions of lengths, as text and as a picture. */
#ifndef SIMULATOR_TRACE_MAIN_H
#define SIMULATOR_TRACE_MAIN_H

/* argv[0] is the subcommand's name. The exit status: 0, or 2 for a wrong option, a bad trace or a
 * picture that could not be drawn. */
int trace_main(int argc, char **argv);

#endif
