/* trace_main: the command `cleave trace`, which describes a trace: number of requests, rate and
 * active tokens over time, and distributions of lengths, as text and as a picture. It can also
 * write a part of a trace, or the requests of a gateway's event log, as a trace. The program's
 * main() calls it on the main thread. It sends and simulates nothing: `cleave replay` and `cleave
 * simulate` do. */
#ifndef TOOLS_TRACE_MAIN_H
#define TOOLS_TRACE_MAIN_H

/* argv[0] is the subcommand's name. Returns the exit status: 0 = the trace was described; 1 =
 * failed, e.g. a wrong trace, or a picture or file that could not be written; 2 = wrong options. */
int trace_main(int argc, char **argv);

#endif
