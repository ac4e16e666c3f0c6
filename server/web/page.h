/* web_page: the page that GET / answers with, and its Content-Security-Policy. The build makes
 * page.c of page.html (server/web/embed.py). Constants; server/http/page.c reads them. */
#ifndef SERVER_WEB_PAGE_H
#define SERVER_WEB_PAGE_H

#include <stddef.h>

extern const unsigned char web_page[];
extern const size_t web_page_bytes;
extern const char web_page_policy[];

#endif
