/* plan_print, the report: one HTML file that refers to no other. */
#include "simulator/plan_print.h"

#include "simulator/plan_picture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>cleave plan</title>\n"
    "<style>body{font:15px sans-serif;margin:2em}pre{font-size:12px;overflow-x:auto;"
    "background:#f4f4f4;padding:1em}svg{max-width:100%;height:auto}</style></head><body>\n"
    "<h1>cleave plan</h1>\n";

static void escaped_write(const char *text, FILE *out)
{
    for (; *text != 0; text++)
        if (*text == '<')
            fputs("&lt;", out);
        else if (*text == '&')
            fputs("&amp;", out);
        else
            fputc(*text, out);
}

static void command_write(int argc, char **argv, FILE *out)
{
    fputs("<pre>cleave", out);
    for (int i = 0; i < argc; i++) {
        fputc(' ', out);
        escaped_write(argv[i], out);
    }
    fputs("</pre>\n", out);
}

static enum status table_write(const struct plan_search *search, FILE *out, struct error *error)
{
    char *text = NULL;
    size_t bytes;
    FILE *table = open_memstream(&text, &bytes);
    if (table == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    plan_print(search, table);
    if (fclose(table) != 0) {
        free(text);
        return error_set(error, ST_NO_MEMORY, "out of memory");
    }
    fputs("<pre>", out);
    escaped_write(text, out);
    fputs("</pre>\n", out);
    free(text);
    return ST_OK;
}

/* Without gnuplot the report says so in the picture's place. */
static enum status pictures_write(const struct plan_search *search, FILE *out, struct error *error)
{
    for (uint32_t c = 0; c < search->cell_count; c++) {
        char *svg = NULL;
        if (c > 0 && search->cells[c].budget == search->cells[c - 1].budget)
            continue;
        enum status status = plan_picture(search, c, &svg, error);
        bool none = status == ST_UNSUPPORTED || status == ST_NOT_FOUND;
        if (status != ST_OK && !none)
            return status;
        fputs("<h2>", out);
        escaped_write(search->cells[c].budget, out);
        fputs("</h2>\n", out);
        if (none) {
            fprintf(out, "<p>No pictures: %s.</p>\n", error->text);
            fprintf(stderr, "cleave plan: --html: no pictures: %s\n", error->text);
        } else {
            fputs(svg, out);
        }
        free(svg);
    }
    return ST_OK;
}

static enum status data_write(const struct plan_search *search, FILE *out, struct error *error)
{
    json_t *json = plan_json(search);
    char *text = json_dumps(json, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    json_decref(json);
    if (text == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    fputs("<details><summary>Data</summary><pre>", out);
    escaped_write(text, out);
    fputs("</pre></details>\n</body></html>\n", out);
    free(text);
    return ST_OK;
}

enum status plan_html_write(const struct plan_search *search, int argc, char **argv,
                            const char *path, struct error *error)
{
    FILE *out = fopen(path, "we");
    if (out == NULL)
        return error_set(error, ST_IO, "--html %s: %s", path, strerror(errno));
    fputs(head, out);
    command_write(argc, argv, out);
    enum status status = table_write(search, out, error);
    if (status == ST_OK)
        status = pictures_write(search, out, error);
    if (status == ST_OK)
        status = data_write(search, out, error);
    if (fclose(out) != 0 && status == ST_OK)
        status = error_set(error, ST_IO, "--html %s: could not be written", path);
    return status;
}
