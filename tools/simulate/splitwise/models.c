#include "tools/simulate/splitwise/models.h"

#include <stddef.h>
#include <string.h>

static const struct splitwise_model models[] = {
    {"bloom-176b", 70, 14336, 329000000000ull},
    {"llama2-70b", 80, 8192, 135000000000ull},
};

const struct splitwise_model *splitwise_model_find(const char *name)
{
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++)
        if (strcmp(models[i].name, name) == 0)
            return &models[i];
    return NULL;
}
