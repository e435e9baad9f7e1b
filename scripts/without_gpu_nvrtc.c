// An NVRTC that compiles nothing: what it gives for PTX is the source, by which kernels can be compared.
//
//   cc -shared -fPIC -O2 -Wl,-soname,libnvrtc.so.13 -o DIR/libnvrtc.so.13 without_gpu_nvrtc.c
//
// It has the functions that CubeCL 0.11 calls, and no others.
#include <stdlib.h>
#include <string.h>

int nvrtcCreateProgram(char **program, const char *source, const char *name, int count, const char **headers, const char **names) {
  return (*program = strdup(source)) ? 0 : 1;
}
int nvrtcCompileProgram(char *program, int count, const char **options) { return 0; }
int nvrtcGetPTXSize(char *program, size_t *bytes) { return *bytes = strlen(program) + 1, 0; }
int nvrtcGetPTX(char *program, char *ptx) { return strcpy(ptx, program), 0; }
int nvrtcGetProgramLogSize(char *program, size_t *bytes) { return *bytes = 1, 0; }
int nvrtcGetProgramLog(char *program, char *log) { return *log = 0, 0; }
int nvrtcDestroyProgram(char **program) { return free(*program), *program = NULL, 0; }
const char *nvrtcGetErrorString(int error) { return "of the stand-in"; }
int nvrtcVersion(int *major, int *minor) { return *major = 13, *minor = 0, 0; }
