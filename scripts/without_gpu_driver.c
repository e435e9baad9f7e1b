// A CUDA driver for a machine without a GPU: its device memory is the host's, its kernels do nothing. What remains of a program
// is its part on the host: kernels are compiled to PTX as for the GPU that this claims to be, and launched one after the other.
//
//   cc -shared -fPIC -O2 -Wl,-soname,libcuda.so -o DIR/libcuda.so without_gpu_driver.c && LD_LIBRARY_PATH=DIR PROGRAM
//
//   STAND_IN_PTX=DIR   every kernel that is loaded is written there, as NUMBER.ptx
//   STAND_IN_LOG=FILE  at the end of the process: the kernels, the launches, the most memory in use, that at the end
//   STAND_IN_GIB=N     its device memory (16)
//   STAND_IN_US=T      a launch keeps the device busy for T microseconds, a copy as long as 25 GB/s take (none, 0)
//   STAND_IN_INIT=N    what cuInit says: 807, an MPS server that is not ready (0)
//   STAND_IN_CALLS=FILE  every launch that is not recorded, with the parameters that are addresses, and every copy on the device
//
// It has the functions that CubeCL 0.11 calls, and no others. It must not be found as libcuda.so.1: NVRTC would ask it for more.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, DEINITIALIZED = 4, NOT_READY = 600, NOT_SUPPORTED = 801 };
typedef struct { double done; } Event;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
// Launches, those recorded into a graph included, and how many of them the last graph has.
static unsigned long kernels, launches, recorded;
static int recording, is_over;
static double busy_until, launch_us;
static size_t memory = (size_t)16 << 30, memory_in_use, memory_peak;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1e6 + time.tv_nsec * 1e-3;
}

// One stream: work begins when it is given, or when the work before it is done.
static void keep_busy(double us) {
  if (launch_us == 0) return;
  pthread_mutex_lock(&lock);
  double start = now();
  busy_until = (busy_until > start ? busy_until : start) + us;
  pthread_mutex_unlock(&lock);
}

static int wait_until(double time) {
  for (double left; (left = time - now()) > 0;)
    if (left > 100) {
      struct timespec pause = {(time_t)(left / 1e6), (long)((left - (long)(left / 1e6) * 1e6 - 60) * 1e3)};
      if (pause.tv_nsec > 0) nanosleep(&pause, NULL);
    }
  return SUCCESS;
}

static void report(void) {
  const char *path = getenv("STAND_IN_LOG");
  FILE *file = path ? fopen(path, "w") : NULL;
  if (file) {
    fprintf(file, "{\"kernels\": %lu, \"launches\": %lu, \"recorded\": %lu, ", kernels, launches, recorded);
    fprintf(file, "\"memory\": %zu, \"memory_at_end\": %zu}\n", memory_peak, memory_in_use);
    fclose(file);
  }
  is_over = 1;
}

static FILE *calls(void) {
  static FILE *file;
  const char *path = getenv("STAND_IN_CALLS");
  if (!file && path) file = fopen(path, "w");
  return file;
}

int cuInit(unsigned flags) {
  static int is_ready;
  const char *us = getenv("STAND_IN_US");
  const char *gib = getenv("STAND_IN_GIB");
  launch_us = us ? atof(us) : 0;
  if (gib) memory = (size_t)(atof(gib) * (1 << 30));
  if (!is_ready++) atexit(report);
  const char *error = getenv("STAND_IN_INIT");
  return error ? atoi(error) : SUCCESS;
}

int cuDriverGetVersion(int *version) { return *version = 13000, SUCCESS; }
int cuDeviceGetCount(int *count) { return *count = 1, SUCCESS; }
int cuDeviceGet(int *device, int number) { return *device = number, SUCCESS; }
int cuDeviceGetName(char *name, int size, int device) { return snprintf(name, size, "no GPU, a stand-in for an H200"), SUCCESS; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return *bytes = memory, SUCCESS; }
int cuDeviceGetPCIBusId(char *id, int size, int device) { return snprintf(id, size, "0000:00:00.0"), SUCCESS; }
int cuDeviceGetLuid(char *id, unsigned *mask, int device) { return NOT_SUPPORTED; }
int cuDeviceGetUuid_v2(char *id, int device) { return memset(id, 0, 16), SUCCESS; }

// CUdevice_attribute, with an H200's values.
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  switch (attribute) {
    case 1: case 2: case 3: *value = 1024; break;  // threads of a block, its width, its height
    case 4: *value = 64; break;                    // its depth
    case 5: *value = 2147483647; break;            // width of a grid
    case 6: case 7: *value = 65535; break;         // its height and depth
    case 8: *value = 49152; break;                 // shared memory of a block
    case 10: *value = 32; break;                   // threads of a warp
    case 12: case 82: *value = 65536; break;       // registers of a block, of a multiprocessor
    case 16: *value = 132; break;                  // multiprocessors
    case 38: *value = 62914560; break;             // L2 cache
    case 39: *value = 2048; break;                 // threads of a multiprocessor
    case 75: *value = 9; break;                    // compute capability
    case 76: *value = 0; break;
    case 81: *value = 233472; break;               // shared memory of a multiprocessor
    case 97: *value = 232448; break;               // of a block that asks for more
    default: *value = 1;
  }
  return SUCCESS;
}

int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = &lock, SUCCESS; }
int cuDevicePrimaryCtxRelease_v2(int device) { return SUCCESS; }
// As of a driver that ended with the process, whatever its threads still do.
int cuCtxSetCurrent(void *context) { return is_over ? DEINITIALIZED : SUCCESS; }
int cuCtxGetCurrent(void **context) { return *context = &lock, SUCCESS; }
int cuCtxGetStreamPriorityRange(int *least, int *most) { return *least = 0, *most = -5, SUCCESS; }
int cuStreamCreate(void **stream, unsigned flags) { return *stream = &lock, SUCCESS; }
int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) { return *stream = &lock, SUCCESS; }
int cuStreamSynchronize(void *stream) { return wait_until(busy_until); }
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) { return SUCCESS; }
int cuStreamDestroy_v2(void *stream) { return SUCCESS; }

int cuEventCreate(Event **event, unsigned flags) { return *event = calloc(1, sizeof(Event)), SUCCESS; }
int cuEventRecord(Event *event, void *stream) { return event->done = busy_until, SUCCESS; }
int cuEventSynchronize(Event *event) { return wait_until(event->done); }
int cuEventQuery(Event *event) { return now() < event->done ? NOT_READY : SUCCESS; }
int cuEventElapsedTime_v2(float *ms, Event *from, Event *to) { return *ms = (to->done - from->done) / 1e3, SUCCESS; }
int cuEventDestroy_v2(Event *event) { return free(event), SUCCESS; }

// Pages that nothing touches take no memory.
static int reserve(void **at, size_t bytes) {
  *at = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return *at == MAP_FAILED ? OUT_OF_MEMORY : SUCCESS;
}

// A page before the memory remembers how much it is.
enum { PAGE = 4096 };

int cuMemAlloc_v2(char **at, size_t bytes) {
  void *start;
  if (__atomic_add_fetch(&memory_in_use, bytes, __ATOMIC_RELAXED) > memory || reserve(&start, bytes + PAGE) != SUCCESS) {
    __atomic_sub_fetch(&memory_in_use, bytes, __ATOMIC_RELAXED);
    return OUT_OF_MEMORY;
  }
  *(size_t *)start = bytes;
  pthread_mutex_lock(&lock);
  if (memory_in_use > memory_peak) memory_peak = memory_in_use;
  pthread_mutex_unlock(&lock);
  return *at = (char *)start + PAGE, SUCCESS;
}

int cuMemFree_v2(char *at) {
  size_t bytes = *(size_t *)(at - PAGE);
  __atomic_sub_fetch(&memory_in_use, bytes, __ATOMIC_RELAXED);
  return munmap(at - PAGE, bytes + PAGE), SUCCESS;
}

int cuMemGetInfo_v2(size_t *left, size_t *all) { return *all = memory, *left = memory - memory_in_use, SUCCESS; }
int cuMemAllocAsync(char **at, size_t bytes, void *stream) { return cuMemAlloc_v2(at, bytes); }
int cuMemFreeAsync(char *at, void *stream) { return cuMemFree_v2(at); }
int cuMemAllocHost_v2(void **at, size_t bytes) { return reserve(at, bytes); }
int cuMemFreeHost(void *at) { return SUCCESS; }
int cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t bytes, void *stream) { return keep_busy(2 + bytes / 25e3), SUCCESS; }
int cuMemcpyDtoHAsync_v2(void *to, void *from, size_t bytes, void *stream) { return memset(to, 0, bytes), SUCCESS; }
int cuMemcpyDtoDAsync_v2(void *to, void *from, size_t bytes, void *stream) {
  if (calls()) fprintf(calls(), "copy %p %p %zu\n", to, from, bytes), fflush(calls());
  return SUCCESS;
}
int cuMemcpy2DAsync_v2(const void *copy, void *stream) { return SUCCESS; }
int cuMemsetD8Async(void *at, unsigned char value, size_t bytes, void *stream) { return SUCCESS; }

int cuModuleLoadData(void **module, const char *ptx) {
  const char *folder = getenv("STAND_IN_PTX");
  pthread_mutex_lock(&lock);
  unsigned long number = ++kernels;
  pthread_mutex_unlock(&lock);
  *module = strdup(ptx);
  if (!folder) return SUCCESS;
  char path[4096];
  snprintf(path, sizeof path, "%s/%04lu.ptx", folder, number);
  FILE *file = fopen(path, "w");
  if (!file) return perror(path), NOT_SUPPORTED;
  fputs(ptx, file);
  return fclose(file), SUCCESS;
}

int cuModuleUnload(void *module) { return free(module), SUCCESS; }

// A kernel by the sizes of its parameters, as the entry of its PTX has them; what is no PTX has none.
enum { MOST_PARAMETERS = 64 };
typedef struct { int count; size_t sizes[MOST_PARAMETERS]; char name[256]; } Kernel;

int cuModuleGetFunction(Kernel **function, const char *module, const char *name) {
  Kernel *kernel = calloc(1, sizeof(Kernel));
  char entry[300];
  snprintf(entry, sizeof entry, ".entry %.255s(", name);
  snprintf(kernel->name, sizeof kernel->name, "%s", name);
  const char *at = strstr(module, entry), *end = at ? strchr(at + strlen(entry), ')') : NULL;
  while (end && kernel->count < MOST_PARAMETERS && (at = strstr(at + 1, ".param")) && at < end) {
    const char *next = strchr(at, ','), *size;
    if (!next || next > end) next = end;
    size = memchr(at, '[', next - at);
    kernel->sizes[kernel->count++] = size ? (size_t)atoi(size + 1) : memmem(at, next - at, ".u64", 4) ? 8 : 4;
  }
  return *function = kernel, SUCCESS;
}
int cuFuncSetAttribute(Kernel *kernel, int attribute, int value) { return SUCCESS; }
int cuFuncGetParamInfo(Kernel *kernel, size_t at, size_t *offset, size_t *size) {
  return at < kernel->count ? (*offset = 0, *size = kernel->sizes[at], SUCCESS) : INVALID_VALUE;
}

// A graph is a list of launches, one stream's.
typedef struct Node { struct Node *before; Kernel *kernel; unsigned grid[3], block[3], shared; void *parameters[MOST_PARAMETERS]; } Node;
static Node *last;

int cuLaunchKernel(Kernel *kernel, unsigned x, unsigned y, unsigned z, unsigned width, unsigned height, unsigned depth,
                   unsigned shared, void *stream, void **parameters, void **extra) {
  __atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED);
  if (recording) {
    Node *node = calloc(1, sizeof(Node));
    *node = (Node){last, kernel, {x, y, z}, {width, height, depth}, shared, {NULL}};
    for (int i = 0; i < kernel->count; i++)
      memcpy(node->parameters[i] = malloc(kernel->sizes[i]), parameters[i], kernel->sizes[i]);
    return last = node, ++recorded, SUCCESS;
  }
  if (calls()) {
    fprintf(calls(), "launch %s", kernel->name);
    for (int i = 0; i < kernel->count; i++)
      if (kernel->sizes[i] == 8) fprintf(calls(), " %llx", *(unsigned long long *)parameters[i]);
    fprintf(calls(), "\n"), fflush(calls());
  }
  return keep_busy(launch_us), SUCCESS;
}

int cuStreamBeginCapture_v2(void *stream, int mode) { return recording = 1, recorded = 0, last = NULL, SUCCESS; }
typedef struct { unsigned long launches; Node *last; } Graph;
int cuStreamEndCapture(void *stream, Graph **graph) {
  *graph = malloc(sizeof(Graph));
  **graph = (Graph){recorded, last};
  return recording = 0, SUCCESS;
}
int cuGraphGetNodes(Graph *graph, Node **nodes, size_t *count) {
  if (!nodes) return *count = graph->launches, SUCCESS;
  // The last one first: who wants an order asks what depends on what.
  Node *node = graph->last;
  for (size_t i = 0; i < *count && node; i++, node = node->before) nodes[i] = node;
  return SUCCESS;
}
int cuGraphNodeGetDependencies_v2(Node *node, Node **before, void *data, size_t *count) {
  if (before && *count) *before = node->before;
  return *count = node->before != NULL, SUCCESS;
}
int cuGraphNodeGetType(Node *node, int *type) { return *type = 0, SUCCESS; }
typedef struct { Kernel *kernel; unsigned grid[3], block[3], shared; void **parameters, *others[3]; } NodeParams;
int cuGraphKernelNodeGetParams_v2(Node *node, NodeParams *of) {
  *of = (NodeParams){node->kernel, {0}, {0}, node->shared, node->parameters, {NULL}};
  memcpy(of->grid, node->grid, sizeof of->grid);
  return memcpy(of->block, node->block, sizeof of->block), SUCCESS;
}
// What is as large as an address is one.
int cuPointerGetAttribute(unsigned *value, int attribute, unsigned long long at) {
  return at >> 32 ? (*value = 2, SUCCESS) : INVALID_VALUE;
}
int cuGraphInstantiateWithFlags(void **run, Graph *graph, unsigned long long flags) { return *run = (void *)graph->launches, SUCCESS; }
int cuGraphUpload(void *run, void *stream) { return SUCCESS; }
int cuGraphLaunch(void *run, void *stream) { return keep_busy((uintptr_t)run * launch_us), SUCCESS; }
int cuGraphExecDestroy(void *run) { return SUCCESS; }
int cuGraphDestroy(Graph *graph) { return free(graph), SUCCESS; }

int cuGetErrorName(int error, const char **name) { return *name = "of the stand-in", SUCCESS; }
int cuGetErrorString(int error, const char **text) { return *text = "an error of the stand-in", SUCCESS; }
