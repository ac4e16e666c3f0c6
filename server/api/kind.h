/* api_kind: the kinds of requests that generate text: POST /v1/completions and
 * /v1/chat/completions. Used by the parsers of this folder and by server/http. No state. */
#ifndef SERVER_API_KIND_H
#define SERVER_API_KIND_H

enum api_kind { API_COMPLETION, API_CHAT };

#endif
