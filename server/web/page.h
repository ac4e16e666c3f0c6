/* web_page: the page that answers GET /, as constants. The build makes the constants from page.html
 * with server/web/embed.py. server/http/page.c reads the constants on the gateway's event loop
 * thread. This header has no functions. */
#ifndef SERVER_WEB_PAGE_H
#define SERVER_WEB_PAGE_H

#include <stddef.h>

extern const unsigned char web_page[]; /* HTML, without a NUL at its end. */
extern const size_t web_page_bytes;    /* Bytes of web_page. */
extern const char web_page_policy[];   /* Value of the header Content-Security-Policy. */

#endif
