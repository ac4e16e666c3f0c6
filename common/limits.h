/* limits: bounds that are fixed when cleave is built. Any folder may use them. A constant is a
 * maximum, unless its name ends in _MIN; the comment names the bounded quantity. Constants only: no
 * code, no threads. Bounds that an operator may want to change are keys of the config file
 * (config/config.h). */
#ifndef COMMON_LIMITS_H
#define COMMON_LIMITS_H

#define LIMIT_NAME_BYTES    32   /* A machine's name with its NUL; a multiple of 8. */
#define LIMIT_ADDRESS_BYTES 128  /* "host:port" with its NUL. */
#define LIMIT_USER_BYTES    128  /* Name of the user in etcd or the tier "store", with its NUL. */
#define LIMIT_PATH_BYTES    1024 /* A file path with its NUL. */
/* Machines of a cluster. The gateway's memory for links grows with the square of this number. */
#define LIMIT_MACHINES       256
#define LIMIT_LAYERS         256     /* Layers of a model. */
#define LIMIT_HEADS          1024    /* Heads of one layer. */
#define LIMIT_CONTEXT_TOKENS 1048576 /* Context of one request; the model may allow less. */
#define LIMIT_BLOCK_TOKENS   256     /* Tokens of one KV block. */
/* Stage processes of one machine: all replicas and ranks of its stages, without the head. */
#define LIMIT_STAGE_PROCESSES    64
#define LIMIT_RANKS              16    /* Ranks of one stage. */
#define LIMIT_STAGE_PATHS        16    /* Paths through the replicas of one machine's stages. */
#define LIMIT_EMBEDDING_ELEMENTS 65536 /* Elements of an embedding. */
#define LIMIT_LOGPROBS           20    /* Alternative tokens reported per position. */
#define LIMIT_STOP_STRINGS       16    /* Stop strings of one request. */
#define LIMIT_STOP_BYTES         256   /* Bytes of a stop string, or of a text of bad_words. */
#define LIMIT_CHOICES            16    /* n and best_of: answers to one prompt of a request. */
#define LIMIT_PROMPTS            64    /* Prompts, or inputs of embeddings, of one body. */
#define LIMIT_CHUNK_TOKENS_MIN   16    /* Tokens of a chunk that does not end its prompt. */
#define LIMIT_BATCH_TOKENS       4096  /* Tokens of one batch. */
#define LIMIT_BATCH_SEQUENCES    512   /* Requests of one batch. */
#define LIMIT_DRAFT_TOKENS       16    /* Drafted tokens that one step checks for an answer. */
#define LIMIT_MACHINE_REQUESTS   4096  /* Requests in one machine, including waiting requests. */
#define LIMIT_CLUSTER_REQUESTS   8192  /* Open requests of one gateway. */
#define LIMIT_API_KEYS           10000 /* API keys in one file. */
#define LIMIT_KEY_NAME_BYTES     64    /* Name of an API key or cache group, with its NUL. */
#define LIMIT_CACHE_SALT_BYTES   256   /* Bytes of a request's cache_salt. */
#define LIMIT_CONSTRAINT_BYTES   (64 << 10)  /* A constraint's text (model/grammar/grammar.h). */
#define LIMIT_TOOLS              128         /* Tools of one request; tool calls in one message. */
#define LIMIT_TOOL_NAME_BYTES    64          /* A tool's name, without a NUL. */
#define LIMIT_TOOLS_BYTES        (256 << 10) /* JSON text of all tools of one request. */
#define LIMIT_KEY_WEIGHT         1000        /* Weight of an API key. */
#define LIMIT_PRIORITY           1000 /* A request's priority: -1000 (first) to 1000 (last). */
#define LIMIT_ADAPTERS           64   /* Low-rank adapters of one model. */
#define LIMIT_PREFIXES           8192 /* Prefixes in one PREFIXES message. */
/* Bytes of a control message; enough for LIMIT_CONTEXT_TOKENS token ids. */
#define LIMIT_MESSAGE_BYTES (16u << 20)

/* Rules of one request for the choice of tokens. */
#define LIMIT_REPETITION_PENALTY 100  /* Value of repetition_penalty. */
#define LIMIT_LOGIT_BIASES       300  /* Tokens in logit_bias. */
#define LIMIT_LOGIT_BIAS         100  /* Absolute value of a bias. */
#define LIMIT_ALLOWED_TOKENS     1024 /* Tokens in allowed_token_ids. */
#define LIMIT_BAD_WORDS          128  /* Texts in bad_words. */
/* uint32_t words of all token sequences that bad_words forbids, with the sequences' lengths. */
#define LIMIT_FORBIDDEN_WORDS 4096
/* uint32_t words of all rules that name tokens (common/token_rules.h). */
#define LIMIT_RULE_WORDS (3 + 2 * LIMIT_LOGIT_BIASES + LIMIT_ALLOWED_TOKENS + LIMIT_FORBIDDEN_WORDS)
/* uint32_t words of a request's rules, plus tokens of its context. */
#define LIMIT_CONTEXT_WORDS (LIMIT_RULE_WORDS + LIMIT_CONTEXT_TOKENS)

/* Values and names in the JSON of one request body: enough for a prompt of LIMIT_CONTEXT_TOKENS
 * token ids. LIMIT_JSON_CONTAINERS bounds the lists and objects among the values, because an empty
 * object takes about 200 bytes in jansson's tree, 70 times the bytes of its text. */
#define LIMIT_JSON_VALUES     (5u << 18)
#define LIMIT_JSON_CONTAINERS (1u << 18)

/* Batches in flight of one machine, over all its paths: enough to keep LIMIT_STAGE_PROCESSES stages
 * busy. */
#define LIMIT_BATCHES_IN_FLIGHT 64

/* The client's id of a request (x-request-id) in a message, with its NUL: GATEWAY_CLIENT_ID_BYTES
 * (server/gateway/submit.h), rounded up to a multiple of 8. */
#define LIMIT_CLIENT_ID_BYTES 136

#endif
