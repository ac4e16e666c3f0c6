/* replay: the command `cleave replay`, which sends a trace to an OpenAI-compatible server and
 * reports the latencies that clients see. Open loop: a request is sent when the trace says, even if
 * answers are late. Latencies count from the time when a request was due, so a slow sender or
 * server cannot hide its delay.
 *
 * main.c calls it on the main thread, which does everything: it reads the trace row by row
 * (tools/trace/trace.h), finds out what the server accepts (server.h), makes prompts of the wanted
 * lengths (prompt.h), sends requests and reads answers (client.h, sse.h), collects the results
 * (report.h) and compares them (comparison.h). It does not start a server and never sends a request
 * again. */
#ifndef TOOLS_REPLAY_REPLAY_H
#define TOOLS_REPLAY_REPLAY_H

/* argv[0] is the subcommand's name. Returns the exit status: 0 = every request got what the trace
 * asks for; 1 = a request did not, or the replay failed (bad trace, no server, a file that could
 * not be written); 2 = wrong options; 130 = interrupted by SIGINT (Ctrl-C) or SIGTERM. */
int replay_main(int argc, char **argv);

#endif
