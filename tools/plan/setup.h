/* plan_setup: makes the inputs of plan_search from the options of `cleave plan`: the kinds of
 * machines with their times, the SLO, the requests, and the cells. A cell is one search: the kinds
 * of the prompt and token machines, and a fixed cost, power, number of machines or rate (struct
 * plan_cell). plan_main owns the struct, and calls the functions on the main thread, before and
 * after the search. This part simulates nothing. */
#ifndef TOOLS_PLAN_SETUP_H
#define TOOLS_PLAN_SETUP_H

#include "tools/plan/options.h"
#include "tools/plan/search.h"

#define PLAN_CELLS_MAX 512 /* Most cells of a run. */

struct plan_setup {
    struct plan_inputs inputs;
    uint64_t inputs_hash; /* Hash of all inputs that influence a result (memo.h). */
    /* Highest rate to try: the smaller of --rate-most and inputs.requests.rate_max. */
    double rate_max;
    uint32_t cell_count;
    struct plan_cell cells[PLAN_CELLS_MAX];
    char names[PLAN_CELLS_MAX][72]; /* names[i]: the text to which cells[i].name points. */
};

/* Reads the files that the options name and fills *setup. *setup points into itself and into the
 * options: *setup must not be moved, and the options must outlive *setup. The text of an error
 * names the option or the file, except if memory runs out. Call plan_setup_done also after an
 * error. */
enum status plan_setup_read(const struct plan_options *options, struct plan_setup *setup,
                            struct error *error);
void plan_setup_done(struct plan_setup *setup);

#endif
