// What the libraries that come with CUDA make: cub, cooperative groups, atomics, complex numbers.
#include <cuda/std/atomic>
#include <cuda/atomic>
#include <cuda/std/complex>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/warp/warp_reduce.cuh>
namespace cg = cooperative_groups;
extern "C" __global__ void cubs(int *x, int* o) {
  using R = cub::BlockReduce<int,128>; __shared__ typename R::TempStorage t; int v = x[threadIdx.x];
  int s = R(t).Sum(v); __shared__ int total; if (!threadIdx.x) total = s; __syncthreads(); s = total;
  using S = cub::BlockScan<int,128>; __shared__ typename S::TempStorage t2; int e; S(t2).ExclusiveSum(v,e); __syncthreads();
  using Q = cub::BlockRadixSort<int,128,4>; __shared__ typename Q::TempStorage t3; int k[4]={v,v^5,v*7,-v}; Q(t3).Sort(k);
  o[threadIdx.x]=s+e+k[0]*3+k[3];
}
extern "C" __global__ void cgs(int*x,int*o){ auto b=cg::this_thread_block(); auto w=cg::tiled_partition<32>(b); int v=x[b.thread_rank()];
  int s=cg::reduce(w,v,cg::plus<int>()); int m=cg::reduce(w,v,cg::greater<int>()); int sc=cg::inclusive_scan(w,v); auto l=cg::labeled_partition(w,v&1); o[b.thread_rank()]=s+m+sc+l.size(); auto g=cg::this_grid(); g.sync(); o[0]+=1;}
extern "C" __global__ void at(cuda::atomic<int>*a, cuda::std::atomic<long long>*b, unsigned char*c, short* h){
  a->fetch_add(1); a->fetch_max(7, cuda::memory_order_relaxed); b->fetch_xor(3); int e=3; a->compare_exchange_strong(e,4); cuda::atomic_ref<unsigned char, cuda::thread_scope_block> r(*c); r.fetch_add(3); cuda::atomic_ref<short> r2(*h); r2.exchange(4); cuda::atomic_thread_fence(cuda::memory_order_seq_cst, cuda::thread_scope_system); a->wait(0); a->notify_all(); }
extern "C" __global__ void cx(cuda::std::complex<float>*c){ auto z=c[threadIdx.x]; c[threadIdx.x]=z*z/cuda::std::complex<float>(1,2)+cuda::std::exp(z); }
extern "C" __global__ void i128(__int128*a){ a[threadIdx.x]=a[threadIdx.x]*a[threadIdx.x+1]/7 + (a[1]>>3); }
