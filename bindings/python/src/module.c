/* mha._mha: the library's calls, with arrays of Python as tensors. The package's Python is what people use. */
#include "module.h"

static PyObject *isa(PyObject *module, PyObject *none)
{
    (void)module, (void)none;
    HELD_CONTEXT ctx = context_get(0);
    return ctx ? PyUnicode_FromString(mha_context_isa(ctx)) : NULL;
}

static PyMethodDef methods[] = {
    {"isa", isa, METH_NOARGS, "The instruction set that calls use."},
    {"know_numpy", array_know_numpy, METH_O, "Tells the extension of the type of NumPy's arrays."},
    {"know_streams", gpu_know_streams, METH_O, "Tells the extension how to find a stream: (array, device) -> address."},
    {"know_team", team_know, METH_O,
     "Tells the extension which library is linked with OpenMP; whether that was found."},
    {"know_torch", array_know_torch, METH_VARARGS,
     "Tells the extension of PyTorch: (Tensor, Parameter, to_dlpack, whether a class overrides)."},
    {NULL, NULL, 0, NULL}};

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "mha._mha", .m_doc = "The calls of libmha.",
                                 .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit__mha(void);
PyMODINIT_FUNC PyInit__mha(void)
{
    int (*const starts[])(void) = {array_start,      attention_start, model_start, tokenizer_start,
                                   generation_start, survey_start,    data_start};
    for (size_t n = 0; n < sizeof starts / sizeof *starts; n++)
        if (starts[n]()) return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (!module) return NULL;
    PyMethodDef *tables[] = {attention_methods,  model_methods,  parameter_methods, survey_methods,   tokenizer_methods,
                             generation_methods, speech_methods, data_methods,      embedder_methods, xla_methods};
    int status = PyModule_AddStringConstant(module, "version", mha_version());
    for (size_t n = 0; !status && n < sizeof tables / sizeof *tables; n++)
        status = PyModule_AddFunctions(module, tables[n]);
    if (status) Py_CLEAR(module);
    return module;
}
