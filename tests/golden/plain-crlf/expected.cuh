int one = 1;
int three = 3;
int two = 4;
