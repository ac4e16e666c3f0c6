/* trace_main: the subcommand `cleave trace`, which describes a trace: number of requests, rate and
 * active tokens over time, and distributions of lengths, as text and, with --plot, also as a
 * picture. The subcommand can also write a part of a trace, or the requests of a gateway's event
 * log, as a trace. The program's main() calls trace_main on the main thread; trace_main owns all
 * parts of the command. The subcommand sends and simulates nothing. */
#ifndef TOOLS_TRACE_MAIN_H
#define TOOLS_TRACE_MAIN_H

/* Runs the subcommand; argv[0] is its name. Returns the exit status: 0 = done; 1 = a failure, such
 * as a wrong row or a file that cannot be written; 2 = wrong options. */
int trace_main(int argc, char **argv);

#endif
