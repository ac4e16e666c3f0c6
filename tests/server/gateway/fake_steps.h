/* fake_steps: what the tests of lost requests do with a fake cluster (fake_cluster.h): bring a
 * request to a moment of its life, and let the machines work. The test's one thread makes every
 * call. It kills no machine. */
#ifndef TESTS_SERVER_GATEWAY_FAKE_STEPS_H
#define TESTS_SERVER_GATEWAY_FAKE_STEPS_H

#include "tests/server/gateway/fake_cluster.h"

enum moment { AT_RESERVE, AT_PROMPT, AT_FIRST_TOKEN, AT_DECODE, MOMENT_COUNT };

/* Brings a request (on p0 and t0) to a moment, and returns it as t0 has it. score = the scores of
 * the prompt are wanted. */
struct fake_request *fake_bring(struct fake_cluster *c, struct fake_client *client,
                                enum moment moment, bool score);
/* Runs the machines until no machine has work left. */
void fake_run_all(struct fake_cluster *c);
/* Sends what is in the machine's outbox, and lets the others handle it. */
void fake_outbox_send(struct fake_cluster *c, struct fake_machine *m);

#endif
