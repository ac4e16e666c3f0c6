/* limits: every bound of the system that is fixed when it is built, by name, with its reason.
 * Bounds that an operator may want to move are keys of the config file instead (common/config.h).
 */
#ifndef COMMON_LIMITS_H
#define COMMON_LIMITS_H

#define LIMIT_NAME_BYTES       32     /* a machine's name, with its NUL: fits every wire struct */
#define LIMIT_ADDRESS_BYTES    128    /* "host:port", with its NUL */
#define LIMIT_PATH_BYTES       1024   /* a file's path, with its NUL */
#define LIMIT_MACHINES         256    /* machines of one cluster: links between them are a matrix */
#define LIMIT_LAYERS           256    /* layers of a model: twice the deepest model known */
#define LIMIT_HEADS            1024   /* of one layer of a model */
#define LIMIT_CONTEXT_TOKENS   131072 /* prompt and answer of one request; the model may say less */
#define LIMIT_BLOCK_TOKENS     256
#define LIMIT_STAGES           64 /* processes of one machine, replicas and ranks counted */
#define LIMIT_RANKS            16 /* processes that compute one stage together (tensor parallelism) */
#define LIMIT_STAGE_PATHS      16 /* ways through the replicas of one machine's stages */
#define LIMIT_LOGPROBS         20 /* alternatives per position that a client may ask for */
#define LIMIT_STOP_STRINGS     16
#define LIMIT_STOP_BYTES       256  /* one stop string */
#define LIMIT_CHOICES          16   /* n */
#define LIMIT_PROMPTS          64   /* prompts in one completion request */
#define LIMIT_BATCH_TOKENS     4096 /* rows of one forward pass; by default a batch ends at 2048 */
#define LIMIT_BATCH_SEQUENCES  512  /* sequences of one forward pass (Splitwise's simulator: 512) */
#define LIMIT_MACHINE_REQUESTS 4096 /* that one machine knows of, waiting ones included */
#define LIMIT_CLUSTER_REQUESTS 8192 /* requests that one gateway has open */
#define LIMIT_API_KEYS         256  /* in one file of keys */
#define LIMIT_KEY_NAME_BYTES   64   /* an API key's name, with its NUL */
#define LIMIT_WEIGHT           1000 /* of an API key */
#define LIMIT_PRIORITY         1000 /* of a request: from minus this (first) to this (last) */
#define LIMIT_PREFIXES         8192 /* beginnings of prompts in one message of a machine */
#define LIMIT_MESSAGE_BYTES    (4u << 20) /* one control message: LIMIT_CONTEXT_TOKENS fit */

/* Of one machine, over all its paths: as many as stages keep a pipe full. */
#define LIMIT_BATCHES_IN_FLIGHT 64

#endif
