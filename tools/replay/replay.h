/* replay: the subcommand `cleave replay`, which sends a trace to an OpenAI-compatible server and
 * reports the latencies that clients see. Open loop: a request is sent when the trace says, even if
 * answers are late. Latencies count from the time when a request was due, so a slow sender or
 * server cannot hide its delay. main.c calls replay_main on the main thread; replay_main owns all
 * parts of a replay. The subcommand starts no server and does not retry a request. */
#ifndef TOOLS_REPLAY_REPLAY_H
#define TOOLS_REPLAY_REPLAY_H

/* Runs the subcommand; argv[0] is its name. Returns the exit status: 0 = all requests are done, and
 * all token counts that answers report are the wanted counts; 1 = another result, or the replay
 * failed; 2 = wrong options; 130 = interrupted by SIGINT (Ctrl-C) or SIGTERM. */
int replay_main(int argc, char **argv);

#endif
