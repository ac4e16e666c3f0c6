/* trace_synthetic: a synthetic workload: requests with random arrivals and lengths. Lengths are
 * drawn from a distribution or from the rows of a trace. A text describes the workload,
 * "NAME:key=value,…":
 *
 *   poisson:rate=5,…             gaps are exponential, 5 requests per second on average
 *   gamma:rate=5,cv=2,…          gaps with coefficient of variation 2; above 1: bursts
 *   onoff:rate=5,on=10,off=20,…  like poisson for 10 s, then nothing for 20 s, repeated
 *
 * Further keys: seconds=N, requests=N or both (the limit that is reached first ends the workload);
 * prompt=LENGTHS and output=LENGTHS, or lengths=FILE; seed=N. LENGTHS is fixed:N,
 * uniform:LEAST:MOST or lognormal:MEDIAN:SIGMA. With lengths=FILE a request gets both lengths of a
 * random row of the file; of a file with more than 2^20 rows, 2^20 random rows are used. Equal
 * texts, files and seeds give equal requests.
 *
 * trace.c calls the functions on the thread that reads the trace. Other parts use trace.h. The
 * functions do not wait for the times of the requests. */
#ifndef TOOLS_TRACE_SYNTHETIC_H
#define TOOLS_TRACE_SYNTHETIC_H

#include "tools/trace/trace.h"

struct trace_synthetic;

/* Returns true if the text begins with the name of a kind of arrivals and a colon; false = the text
 * is the name of a file. */
bool trace_is_synthetic(const char *text);

/* Parses the text, and reads the file of lengths=FILE. Requires trace_is_synthetic(text). seed:
 * used if the text has no seed. skip: wrong rows of the file are skipped. ST_INVALID: the text or a
 * row of the file is wrong, or the file has no rows. ST_TOO_LARGE: the text is too long.
 * Other errors are those of trace_open and trace_next for the file. */
enum status trace_synthetic_open(const char *text, uint64_t seed, bool skip,
                                 struct trace_synthetic **synthetic_out, struct error *error);
void trace_synthetic_close(struct trace_synthetic *synthetic); /* NULL is fine. */

/* Returns the number of rows of the file that were skipped. *why_out: why the first skipped row was
 * wrong; "" = no row was skipped. */
uint64_t trace_synthetic_skipped(const struct trace_synthetic *synthetic, const char **why_out);

/* Returns the next request. Ids are 0, 1, …; row_out->line is the id + 1. ST_NOT_FOUND: there are
 * no more requests. */
enum status trace_synthetic_next(struct trace_synthetic *synthetic, struct trace_row *row_out);

#endif
