/* formats: versions of results that several processes of a cluster compute separately and that must
 * be equal in all of these processes. transport/handshake.c sends the versions, compares them, and
 * refuses a peer with another version. Without the refusal, the messages of such a peer could be
 * decoded, but the results in the messages would be wrong. Constants only: no code, no threads.
 *
 * Raise a number when a change of the code gives other results for the same input.
 * tests/model/file/test_formats.c fails after such a change. */
#ifndef COMMON_FORMATS_H
#define COMMON_FORMATS_H

/* The places of K and V of a token in a block, and their rounding (compute/). A machine reads the
 * blocks that another machine has written. A gateway reads no blocks, so only two machines compare
 * this number; the other numbers are compared by all peers. */
#define FORMAT_KV 1

/* Results of prefix_hash (common/prefix_hash.h), which machines report and gateways look up. */
#define FORMAT_PREFIX_HASH 1

/* The hashes of a model: model_file_metadata_hash and model_file_digest
 * (model/file/model_file.h). */
#define FORMAT_MODEL_HASH 1

#endif
