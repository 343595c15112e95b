/* OpenCL's and CLBlast's codes by name, and the sentence of a failure: what was done on which
 * device, the code's name and number, the driver.  The only place that turns a
 * code into an error of ours. */
#include "backend/opencl/cl.h"

static const struct {
    cl_int code;
    const char *name;
} names[] = {
    {0, "CL_SUCCESS"},
    {-1, "CL_DEVICE_NOT_FOUND"},
    {-2, "CL_DEVICE_NOT_AVAILABLE"},
    {-3, "CL_COMPILER_NOT_AVAILABLE"},
    {-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
    {-5, "CL_OUT_OF_RESOURCES"},
    {-6, "CL_OUT_OF_HOST_MEMORY"},
    {-7, "CL_PROFILING_INFO_NOT_AVAILABLE"},
    {-8, "CL_MEM_COPY_OVERLAP"},
    {-9, "CL_IMAGE_FORMAT_MISMATCH"},
    {-10, "CL_IMAGE_FORMAT_NOT_SUPPORTED"},
    {-11, "CL_BUILD_PROGRAM_FAILURE"},
    {-12, "CL_MAP_FAILURE"},
    {-13, "CL_MISALIGNED_SUB_BUFFER_OFFSET"},
    {-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"},
    {-15, "CL_COMPILE_PROGRAM_FAILURE"},
    {-16, "CL_LINKER_NOT_AVAILABLE"},
    {-17, "CL_LINK_PROGRAM_FAILURE"},
    {-18, "CL_DEVICE_PARTITION_FAILED"},
    {-19, "CL_KERNEL_ARG_INFO_NOT_AVAILABLE"},
    {-30, "CL_INVALID_VALUE"},
    {-31, "CL_INVALID_DEVICE_TYPE"},
    {-32, "CL_INVALID_PLATFORM"},
    {-33, "CL_INVALID_DEVICE"},
    {-34, "CL_INVALID_CONTEXT"},
    {-35, "CL_INVALID_QUEUE_PROPERTIES"},
    {-36, "CL_INVALID_COMMAND_QUEUE"},
    {-37, "CL_INVALID_HOST_PTR"},
    {-38, "CL_INVALID_MEM_OBJECT"},
    {-42, "CL_INVALID_BINARY"},
    {-43, "CL_INVALID_BUILD_OPTIONS"},
    {-44, "CL_INVALID_PROGRAM"},
    {-45, "CL_INVALID_PROGRAM_EXECUTABLE"},
    {-46, "CL_INVALID_KERNEL_NAME"},
    {-47, "CL_INVALID_KERNEL_DEFINITION"},
    {-48, "CL_INVALID_KERNEL"},
    {-49, "CL_INVALID_ARG_INDEX"},
    {-50, "CL_INVALID_ARG_VALUE"},
    {-51, "CL_INVALID_ARG_SIZE"},
    {-52, "CL_INVALID_KERNEL_ARGS"},
    {-53, "CL_INVALID_WORK_DIMENSION"},
    {-54, "CL_INVALID_WORK_GROUP_SIZE"},
    {-55, "CL_INVALID_WORK_ITEM_SIZE"},
    {-56, "CL_INVALID_GLOBAL_OFFSET"},
    {-57, "CL_INVALID_EVENT_WAIT_LIST"},
    {-58, "CL_INVALID_EVENT"},
    {-59, "CL_INVALID_OPERATION"},
    {-61, "CL_INVALID_BUFFER_SIZE"},
    {-63, "CL_INVALID_GLOBAL_WORK_SIZE"},
    {-64, "CL_INVALID_PROPERTY"},
    {-66, "CL_INVALID_COMPILER_OPTIONS"},
    {-67, "CL_INVALID_LINKER_OPTIONS"},
    {-1001, "CL_PLATFORM_NOT_FOUND_KHR"},
    /* CLBlast's own */
    {-1007, "CLBlastInsufficientMemoryY"},
    {-1008, "CLBlastInsufficientMemoryX"},
    {-1009, "CLBlastInsufficientMemoryC"},
    {-1010, "CLBlastInsufficientMemoryB"},
    {-1011, "CLBlastInsufficientMemoryA"},
    {-1012, "CLBlastInvalidIncrementY"},
    {-1013, "CLBlastInvalidIncrementX"},
    {-1014, "CLBlastInvalidLeadDimC"},
    {-1015, "CLBlastInvalidLeadDimB"},
    {-1016, "CLBlastInvalidLeadDimA"},
    {-1017, "CLBlastInvalidDimension"},
    {-1018, "CLBlastInvalidVectorY"},
    {-1019, "CLBlastInvalidVectorX"},
    {-1020, "CLBlastInvalidMatrixC"},
    {-1021, "CLBlastInvalidMatrixB"},
    {-1022, "CLBlastInvalidMatrixA"},
    {-1024, "CLBlastNotImplemented"},
    {-2039, "CLBlastUnexpectedError"},
    {-2040, "CLBlastUnknownError"},
    {-2041, "CLBlastDatabaseError"},
    {-2042, "CLBlastInsufficientMemoryScalar"},
    {-2043, "CLBlastInvalidVectorScalar"},
    {-2044, "CLBlastNoDoublePrecision"},
    {-2045, "CLBlastNoHalfPrecision"},
    {-2046, "CLBlastInvalidLocalMemUsage"},
    {-2047, "CLBlastMissingOverrideParameter"},
    {-2048, "CLBlastInvalidOverrideKernel"},
    {-2049, "CLBlastInvalidBatchCount"},
    {-2050, "CLBlastInsufficientMemoryTemp"},
    {-9999, "an illegal read or write on the device"},
};

const char *cl_error_name(cl_int code)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].code == code)
            return names[i].name;
    return "unknown code";
}

int cl_error_class(cl_int code)
{
    switch (code) {
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_HOST_MEMORY:
    case CL_INVALID_BUFFER_SIZE:
        return ERR_NOMEM;
    default:
        return ERR_DEVICE;
    }
}

void cl_fail(struct clb *c, cl_int code, const char *what)
{
    backend_fail(&c->base, cl_error_class(code), "%s: %s (%d) on %s, driver %s", what, cl_error_name(code),
                 code, c->dev.name, c->dev.driver);
}

int cl_err(const struct clb *c, cl_int code, const char *what, struct err *err)
{
    return err_set(err, cl_error_class(code), "%s: %s: %s (%d) on %s, driver %s", c->base.device, what,
                   cl_error_name(code), code, c->dev.name, c->dev.driver);
}
