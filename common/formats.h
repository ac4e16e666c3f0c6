/* formats: versions of results that several processes of a cluster compute separately and that must
 * be equal in these processes. transport/ sends the versions, and refuses a peer with another
 * version. Constants only: no code, no threads.
 *
 * Raise a number when a change of the code gives other results for the same input.
 * tests/model/file/test_formats.c fails after such a change. */
#ifndef COMMON_FORMATS_H
#define COMMON_FORMATS_H

/* The places of K and V of a token in a block, and their rounding (compute/). This number is
 * compared only between two processes that are not gateways (machines and stage processes). */
#define FORMAT_KV 1

/* Results of prefix_hash (common/prefix_hash.h). */
#define FORMAT_PREFIX_HASH 1

/* The hashes of a model: model_file_metadata_hash and model_file_digest
 * (model/file/model_file.h). */
#define FORMAT_MODEL_HASH 1

#endif
