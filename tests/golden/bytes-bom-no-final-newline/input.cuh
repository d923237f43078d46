// café (latin-1)   
	
static void kernel(int n) {  
    step(n);	
} // end