/* Goal: no text crashes the reader of profiles. An accepted profile is usable: times are finite and
 * never decrease, and the written profile reads back as the same text. */
#include "profile/profile.h"

#include "tests/check.h"
#include "tests/fuzz.h"
#include "tests/profile/profile_example.h"

#include <math.h>
#include <string.h>

static char *written(const struct profile *p, size_t *bytes)
{
    char *text = NULL;
    struct error error;
    FILE *file = open_memstream(&text, bytes);
    CHECK(file != NULL && profile_write(p, file, &error) == ST_OK);
    fclose(file);
    return text;
}

static void use(const struct profile *p)
{
    for (uint32_t i = 0; i < p->device_count; i++) {
        const struct profile_device *d = &p->devices[i];
        double before = 0;
        for (double x = 0; x < 100; x += 7) {
            /* This context is not less than the first point of any grid. Below the first point,
             * times may decrease. */
            double us = profile_stage_prompt_us(p, d, 0, p->model.layer_count, x, 1e9, 1);
            CHECK(isfinite(us) && us >= before * (1 - 1e-9));
            before = us;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct profile *p, *again;
    struct error error;
    if (profile_parse((const char *)data, size, "text", &p, &error) != ST_OK)
        return 0;
    use(p);
    size_t bytes, bytes_again;
    char *text = written(p, &bytes);
    CHECKF(profile_parse(text, bytes, "again", &again, &error) == ST_OK, "%s", error.text);
    char *text_again = written(again, &bytes_again);
    CHECK(bytes == bytes_again && memcmp(text, text_again, bytes) == 0);
    free(text_again);
    free(text);
    profile_close(again);
    profile_close(p);
    return 0;
}

size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    if (index > 0 || sizeof(profile_example) - 1 > capacity)
        return 0;
    memcpy(buffer, profile_example, sizeof(profile_example) - 1);
    return sizeof(profile_example) - 1;
}
