/* replay: `cleave replay`, which sends a production trace to any OpenAI-style server and reports
 * what its clients felt. Open loop: a request leaves when the trace says, however late the answers
 * are. Latencies count from the moment a request was due, so a sender or a server that falls behind
 * cannot hide it.
 *
 * One thread: reads the trace row by row (simulator/trace.h), asks what the server takes
 * (replay_server), makes a prompt of exactly the asked length (replay_prompt), sends and listens
 * (replay_client, replay_sse), adds up (replay_report) and compares (replay_times). */
#ifndef BENCH_REPLAY_H
#define BENCH_REPLAY_H

/* argv[0] is the subcommand's name. Returns the exit status: 0 when every request got what the
 * trace asks for; 1 when some did not; 2 for wrong options, a bad trace or no server; 130 after
 * Ctrl-C. */
int replay_main(int argc, char **argv);

#endif
