/* formats: some results are computed by several processes of a cluster, each for itself, and must
 * be equal in all of them. Each constant is the version of one such result. transport/handshake.c
 * sends the versions and compares them, and refuses a peer with another version: its messages could
 * be decoded, but the results in them would be wrong. Constants only: no code, no threads.
 *
 * Raise a number when a change gives other results for the same input:
 * tests/model/file/test_formats.c fails then. */
#ifndef COMMON_FORMATS_H
#define COMMON_FORMATS_H

/* Where K and V of a token are in a block, and how they are rounded (compute/): a machine reads the
 * blocks that another machine has written. Compared between machines. */
#define FORMAT_KV 1

/* Values of prefix_hash (common/prefix_hash.h), which machines report and gateways look up. */
#define FORMAT_PREFIX_HASH 1

/* The hashes of a model: model_file_metadata_hash and model_file_digest
 * (model/file/model_file.h). */
#define FORMAT_MODEL_HASH 1

#endif
