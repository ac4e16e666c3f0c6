/* replay: the command `cleave replay`, which sends a trace to an OpenAI-compatible server and
 * reports the latencies that clients see. Open loop: a request is sent when the trace says, even if
 * answers are late. Latencies count from the time when a request was due, so a slow sender or
 * server cannot hide its delay.
 *
 * One thread: reads the trace row by row (tools/trace/trace.h), finds out what the server accepts
 * (replay_server), makes a prompt of exactly the wanted length (replay_prompt), sends and reads
 * (replay_client, replay_sse), collects the results (replay_report) and compares them
 * (replay_times). */
#ifndef TOOLS_REPLAY_REPLAY_H
#define TOOLS_REPLAY_REPLAY_H

/* argv[0] is the subcommand's name. Returns the exit status: 0 = every request got what the trace
 * asks for; 1 = some did not, or a bad trace, no server, or a file that could not be written; 2 =
 * wrong options; 130 = interrupted by Ctrl-C. */
int replay_main(int argc, char **argv);

#endif
