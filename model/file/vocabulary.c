/* vocabulary: see vocabulary.h. */
#include "model/file/vocabulary.h"

#include <jansson.h>
#include <stdlib.h>

void vocabulary_done(struct vocabulary *v)
{
    for (size_t i = 0; i < sizeof(v->owned) / sizeof(v->owned[0]); i++)
        free(v->owned[i]);
    for (size_t i = 0; i < sizeof(v->documents) / sizeof(v->documents[0]); i++)
        json_decref(v->documents[i]);
    *v = (struct vocabulary){.count = 0};
}
