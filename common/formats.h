/* formats: the versions of results that several processes of a cluster compute, each for itself,
 * and that must be equal. The hand-shake (transport/handshake.h) refuses a program with another
 * version, because its messages would be understood and still be wrong. transport/handshake.c sends
 * and compares them. Constants only: no code, no threads.
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
