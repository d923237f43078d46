// café (latin-1)   
	
static __global__ void kernel(int n) {  
    step(n);	
} // end