/* trace_main: the subcommand `cleave trace`, which describes a trace: number of requests, rate and
 * active tokens over time, and distributions of lengths, as text or as a picture. It can also
 * write a part of a trace, or the requests of a gateway's event log, as a trace. It owns all parts
 * of the command. main.c calls it on the main thread. It sends and simulates nothing. */
#ifndef TOOLS_TRACE_MAIN_H
#define TOOLS_TRACE_MAIN_H

/* Runs the subcommand; argv[0] is its name. Returns the exit status: 0 = the trace was described;
 * 1 = a failure, such as a wrong row or a file that cannot be written; 2 = wrong options. */
int trace_main(int argc, char **argv);

#endif
