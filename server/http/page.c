/* http_page: GET / answers with one page to try the server in a browser (server/web/page.html). The
 * page is a constant of the program and has no data: what it shows comes from the API, with the key
 * that its user types. Its headers forbid the browser everything that the page does not need: other
 * hosts, scripts and styles except its own two (known by their SHA-256), and frames. */
#include "server/http/internal.h"

#include "server/web/page.h"

#include <string.h>

bool http_page_served(const struct http *h)
{
    const struct config *config = h->options.config;
    if (strcmp(config->http.page, "auto") == 0)
        return config_address_is_loopback(config->http.listen);
    return strcmp(config->http.page, "on") == 0;
}

enum MHD_Result http_page_answer(struct exchange *x)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(
        web_page_bytes, (void *)(uintptr_t)web_page, MHD_RESPMEM_PERSISTENT);
    if (response == NULL)
        return MHD_NO;
    MHD_add_response_header(response, "Content-Type", "text/html; charset=utf-8");
    MHD_add_response_header(response, "Cache-Control", "no-cache");
    MHD_add_response_header(response, "Content-Security-Policy", web_page_policy);
    MHD_add_response_header(response, "X-Frame-Options", "DENY");
    MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    MHD_add_response_header(response, "Cross-Origin-Opener-Policy", "same-origin");
    MHD_add_response_header(response, "Cross-Origin-Resource-Policy", "same-origin");
    return http_answer_response(x, 200, response);
}
