/* api_error: an HTTP error of the API, as a struct and as JSON: {"error": {"message", "type",
 * "param", "code"}}. Parsers and HTTP handlers fill the struct, and server/http/ writes the JSON
 * into responses. The functions keep no state, and any thread may call them. They send and log
 * nothing. */
#ifndef SERVER_API_ERROR_H
#define SERVER_API_ERROR_H

#include "common/text.h"

struct api_error {
    unsigned status;  /* HTTP status; 0 = no error. */
    const char *code; /* A static word such as "invalid_value"; NULL = the status is the code. */
    char param[64];   /* Name of the field at fault; empty = none. */
    char message[512];
    uint32_t retry_after_s; /* 0 = no Retry-After header. */
    bool final;             /* The client should not send the request again. */
};

/* Clears and fills *error and returns false, so that a parser can `return api_error_set(…)`. The
 * caller may set code, retry_after_s and final afterwards. param NULL = no field. */
bool api_error_set(struct api_error *error, unsigned status, const char *param, const char *format,
                   ...) __attribute__((format(printf, 4, 5)));

/* Appends the JSON body (an object with the one key "error") to *out. */
void api_error_write(const struct api_error *error, struct text *out);
/* Appends the JSON body in the form of Anthropic's API: {"type": "error", "error": {"type",
 * "message"}, "request_id"}. */
void api_error_write_anthropic(const struct api_error *error, const char *request_id,
                               struct text *out);

#endif
