#include "cuda/device/driver.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define TEXT(x)  #x
#define VALUE(x) TEXT(x)

static mha_status load(mha_cuda_driver *driver, char *why, size_t size)
{
    static const struct {
        const char *name;
        size_t at;
    } functions[] = {
#define ROW(name) {VALUE(name), offsetof(mha_cuda_driver, name)},
        MHA_CUDA_FUNCTIONS(ROW)
#undef ROW
    };
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *reason = dlerror();
        snprintf(why, size, "device: cuda needs NVIDIA's driver: %s", reason ? reason : "libcuda.so.1");
        return MHA_NO_DEVICE;
    }
    for (size_t n = 0; n < sizeof functions / sizeof *functions; n++) {
        void *symbol = dlsym(library, functions[n].name);
        if (!symbol) {
            snprintf(why, size, "device: NVIDIA's driver is too old, it has no %s; CUDA 12.0 or newer is needed",
                     functions[n].name);
            return MHA_NO_DEVICE;
        }
        memcpy((char *)driver + functions[n].at, &symbol, sizeof symbol);
    }
    return MHA_OK;
}

mha_status mha_cuda_driver_open(mha_cuda_driver *driver, char *why, size_t size)
{
    mha_status status = load(driver, why, size);
    if (status) return status;
    CUresult result = driver->cuInit(0);
    if (!result) return MHA_OK;
    if (result == CUDA_ERROR_NO_DEVICE) snprintf(why, size, "device: cuda: this machine has no GPU");
    else snprintf(why, size, "device: cuda: the driver does not start: %s", mha_cuda_error_text(driver, result));
    return MHA_NO_DEVICE;
}

const char *mha_cuda_error_text(const mha_cuda_driver *driver, CUresult error)
{
    const char *text = NULL;
    if (driver->cuGetErrorString(error, &text) || !text) return "unknown error";
    return text;
}

static int attribute(const mha_cuda_driver *driver, CUdevice device, CUdevice_attribute which)
{
    int value = 0;
    return driver->cuDeviceGetAttribute(&value, which, device) ? 0 : value;
}

mha_status mha_cuda_describe(const mha_cuda_driver *driver, int ordinal, char *text, size_t size)
{
    int count = 0;
    char name[96] = "";
    size_t bytes = 0;
    CUdevice device;
    CUresult result = driver->cuDeviceGetCount(&count);
    if (!result && ordinal >= count) {
        snprintf(text, size, "device: there is no cuda:%d; this machine has %d GPU%s", ordinal, count,
                 count == 1 ? "" : "s");
        return MHA_NO_DEVICE;
    }
    if (!result) result = driver->cuDeviceGet(&device, ordinal);
    if (!result) result = driver->cuDeviceGetName(name, sizeof name, device);
    if (!result) result = driver->cuDeviceTotalMem(&bytes, device);
    if (result) {
        snprintf(text, size, "device: cuda:%d: %s", ordinal, mha_cuda_error_text(driver, result));
        return MHA_DEVICE_ERROR;
    }
    int major = attribute(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    int minor = attribute(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    if (major != 9 || minor != 0) {
        snprintf(text, size, "device: cuda:%d, %s, has compute capability %d.%d; the kernels need 9.0", ordinal, name,
                 major, minor);
        return MHA_UNSUPPORTED;
    }
    snprintf(text, size, "%s, compute capability %d.%d, %d multiprocessors, %.0f GiB", name, major, minor,
             attribute(driver, device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), (double)bytes / (1 << 30));
    return MHA_OK;
}
