// café (latin-1)   
	
static __global__ void kernel(int n) {  
#if defined(GGML_USE_HIP) && defined(__gfx1151__)
    step(2*n);
#else
    step(n);	
#endif
} // end