/* profile_ranks: the processes of several ranks that are together measured as one device of the
 * profile (tensor parallelism: one process per rank; each rank computes its slice of every layer).
 * Rank 0 is the measuring process; it starts a process for each other rank and sends orders to
 * them. device.c owns the struct of rank 0. device.c and step.c call the functions on the main
 * thread of each rank's process. This part measures nothing and opens no device. */
#ifndef TOOLS_PROFILE_RANKS_H
#define TOOLS_PROFILE_RANKS_H

#include "common/limits.h"
#include "common/status.h"
#include "compute/group.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A call that all ranks make: profile_step_open, profile_step_prompt or profile_step_token. */
struct profile_order {
    enum { PROFILE_OPEN, PROFILE_PROMPT, PROFILE_TOKEN } kind;
    uint32_t rows;    /* PROFILE_PROMPT: tokens; PROFILE_TOKEN: sequences. */
    uint32_t context; /* Cached tokens of the prompt, or of each sequence. */
    uint32_t decodes; /* PROFILE_PROMPT: decodes in the batch. */
    /* PROFILE_OPEN: the fields of struct profile_step_options with these names. */
    uint32_t rows_max, sequences_max, prompt_tokens_max, decode_tokens_max;
};

struct profile_ranks_board; /* Contents of the memory that all ranks share. */

struct profile_ranks {
    uint32_t rank;                     /* This process's rank. */
    uint32_t count;                    /* Number of ranks; 0 or 1 = there is no other rank. */
    struct profile_ranks_board *board; /* Shared memory; NULL = there is no other rank. */
    pid_t pids[LIMIT_RANKS];           /* Rank 0: the other ranks' processes; 0 = none. */
    int order_sockets[LIMIT_RANKS];    /* Rank 0: the socket to each other rank; 0 = none. */
    int order_socket;                  /* The other ranks: the socket of rank 0's orders. */
};

/* Starts the processes of ranks 1 to count - 1. Each process calls run(self, ranks), and ends if
 * `run` returns. ST_NO_MEMORY: memory runs out. ST_IO: no process or socket. Call
 * profile_ranks_stop also after an error. Requires that this process has no other threads, because
 * the function forks. */
enum status profile_ranks_start(uint32_t count,
                                void (*run)(void *self, struct profile_ranks *ranks), void *self,
                                struct profile_ranks *out, struct error *error);
/* Kills the processes, waits for their end, and frees what profile_ranks_start took. Call it also
 * if no process was started. */
void profile_ranks_stop(struct profile_ranks *ranks);

/* Rank 0: sends the order to all other ranks, and waits until all have taken the order.
 * ST_UNREACHABLE: a rank has ended. Does nothing if there are no other ranks. */
enum status profile_ranks_order(struct profile_ranks *ranks, const struct profile_order *order,
                                struct error *error);
/* The other ranks: waits for the next order. Ends the process if rank 0 has stopped or ended. */
void profile_ranks_order_take(struct profile_ranks *ranks, struct profile_order *order);

/* The other ranks: sends the sizes of this rank's weights, bytes[size_count], to rank 0. Requires
 * size_count <= LIMIT_LAYERS + 2. */
void profile_ranks_weights_add(struct profile_ranks *ranks, const uint64_t *bytes,
                               uint32_t size_count);
/* Rank 0: waits for profile_ranks_weights_add of all other ranks, and adds their sizes to
 * bytes[size_count]. ST_UNREACHABLE: a rank has ended. Requires at least two ranks. */
enum status profile_ranks_weights_sum(struct profile_ranks *ranks, uint64_t *bytes,
                                      uint32_t size_count, struct error *error);
/* Rank 0: sends the id of the ranks' group (compute/group.h) to the other ranks. */
void profile_ranks_id_set(struct profile_ranks *ranks, const uint8_t id[COMPUTE_GROUP_ID_BYTES]);
/* The other ranks: waits for rank 0's profile_ranks_id_set, without a time limit. */
void profile_ranks_id_get(struct profile_ranks *ranks, uint8_t id_out[COMPUTE_GROUP_ID_BYTES]);

#endif
