/* SPDX-License-Identifier: Apache-2.0 */
/* A library that answers as NVML does on a machine with 8 H100. FAKE_NVML names what goes wrong:
 * "init", "no-driver", "name", or "odd" (the last GPU is of another kind and answers fewer
 * questions). */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPUS 8
#define FAILED 999
#define NOT_SUPPORTED 3

typedef struct
{
  unsigned long long total, free, used;
} Memory;

int nvmlInit_v2 (void);
int nvmlShutdown (void);
const char *nvmlErrorString (int code);
int nvmlDeviceGetCount_v2 (unsigned *out);
int nvmlDeviceGetHandleByIndex_v2 (unsigned index, void **out);
int nvmlDeviceGetName (void *device, char *out, unsigned length);
int nvmlDeviceGetMemoryInfo (void *device, Memory *out);
int nvmlDeviceGetCudaComputeCapability (void *device, int *out_major, int *out_minor);
int nvmlDeviceGetNvLinkState (void *device, unsigned link, int *out_is_active);
int nvmlDeviceGetNvLinkVersion (void *device, unsigned link, unsigned *out);
int nvmlDeviceGetMaxPcieLinkGeneration (void *device, unsigned *out);
int nvmlDeviceGetMaxPcieLinkWidth (void *device, unsigned *out);
int nvmlDeviceGetPowerManagementLimit (void *device, unsigned *out);

static int opened;
static int gpus[GPUS];

static int
fails (const char *what)
{
  const char *told = getenv ("FAKE_NVML");
  return told && strcmp (told, what) == 0;
}

static int
is_odd (const void *device)
{
  return fails ("odd") && device == &gpus[GPUS - 1];
}

int
nvmlInit_v2 (void)
{
  opened++;
  return fails ("no-driver") ? 9 : fails ("init") ? FAILED : 0;
}

int
nvmlShutdown (void)
{
  return --opened == 0 ? 0 : FAILED;
}

const char *
nvmlErrorString (int code)
{
  return code == FAILED ? "the fake was told to fail" : "not supported";
}

int
nvmlDeviceGetCount_v2 (unsigned *out)
{
  *out = GPUS;
  return 0;
}

int
nvmlDeviceGetHandleByIndex_v2 (unsigned index, void **out)
{
  *out = &gpus[index];
  return opened == 1 ? 0 : FAILED;
}

int
nvmlDeviceGetName (void *device, char *out, unsigned length)
{
  snprintf (out, length, "%s", is_odd (device) ? "Imagined GPU \"1\"" : "NVIDIA H100 80GB HBM3");
  return fails ("name") ? FAILED : 0;
}

int
nvmlDeviceGetMemoryInfo (void *device, Memory *out)
{
  *out = (Memory){ .total = 81559ULL << 20, .free = 12345, .used = 678 };
  return 0;
}

int
nvmlDeviceGetCudaComputeCapability (void *device, int *out_major, int *out_minor)
{
  *out_major = 9;
  *out_minor = 0;
  return is_odd (device) ? NOT_SUPPORTED : 0;
}

int
nvmlDeviceGetNvLinkState (void *device, unsigned link, int *out_is_active)
{
  *out_is_active = 1;
  return is_odd (device) ? NOT_SUPPORTED : 0;
}

int
nvmlDeviceGetNvLinkVersion (void *device, unsigned link, unsigned *out)
{
  *out = 6;
  return 0;
}

int
nvmlDeviceGetMaxPcieLinkGeneration (void *device, unsigned *out)
{
  *out = 5;
  return 0;
}

int
nvmlDeviceGetMaxPcieLinkWidth (void *device, unsigned *out)
{
  *out = 16;
  return 0;
}

int
nvmlDeviceGetPowerManagementLimit (void *device, unsigned *out)
{
  *out = 650000;
  return is_odd (device) ? NOT_SUPPORTED : 0;
}
