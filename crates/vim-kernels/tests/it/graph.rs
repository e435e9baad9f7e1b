//! What a graph replays is what its launches compute, and what cannot be recorded says so.

use burn::tensor::{Device, Tensor};
use vim_kernels::{
    Draws, Graph, KernelChoice, KernelError, Precision, WarmUp, add_rms_norm, drawn, has_kernel,
    in_own_buffer, linear, overwrite,
};

use crate::support::{devices, tensor, values};

const SHAPE: [usize; 3] = [2, 7, 12];

fn numbers(count: usize, step: f64) -> Vec<f64> {
    (0..count).map(|i| f64::from(((i as f64) * step).sin() as f32)).collect()
}

fn input(step: f64, device: &Device) -> Tensor<3> {
    tensor(&numbers(SHAPE.iter().product(), step), SHAPE, device)
}

/// Devices with launches to record.
fn gpus() -> Vec<Device> {
    devices().into_iter().filter(|device| *device != Device::flex()).collect()
}

/// A norm, a product, an operation of Burn, and a slice.
fn layers(device: &Device) -> impl Fn(Tensor<3>) -> Result<Tensor<3>, KernelError> + use<> {
    let gain = tensor(&numbers(12, 0.7), [12], device);
    let weight = tensor(&numbers(12 * 20, 0.3), [12, 20], device);
    move |x| {
        let (normed, sum) = add_rms_norm(x, None, gain.clone(), 1e-5, KernelChoice::Auto)?;
        let wide = linear(normed + sum * 0.5, weight.clone(), None, Precision::F32)?;
        Ok(wide.exp().narrow(2, 3, 5))
    }
}

#[test]
fn a_replay_has_the_bits_of_the_launches() {
    for device in gpus() {
        let forward = layers(&device);
        let graph = Graph::capture(input(0.1, &device), &forward).unwrap();
        let mut replayed = Vec::new();
        for step in [0.1, 0.23, 0.31] {
            replayed.push(graph.replay(input(step, &device)).unwrap());
            // Memory that others take in between is none of the graph's.
            let launched = forward(input(step + 1.0, &device)).unwrap();
            assert_eq!(launched.dims(), [2, 7, 5]);
        }
        // Read after the last replay: each has its own result.
        for (step, replayed) in [0.1, 0.23, 0.31].into_iter().zip(replayed) {
            let launched = forward(input(step, &device)).unwrap();
            assert_eq!(values(replayed), values(launched), "{device:?} {step}");
        }
    }
}

#[test]
fn an_error_of_the_pass_is_returned_and_ends_the_recording() {
    for device in gpus() {
        let narrow = tensor(&numbers(11 * 4, 0.3), [11, 4], &device);
        let wrong = |x| linear(x, narrow.clone(), None, Precision::F32);
        let error = Graph::capture(input(0.1, &device), wrong).map(|_| ()).unwrap_err();
        assert!(matches!(error, KernelError::Shape { operation: "linear", .. }), "{error}");
        // The device computes, and records, as before.
        let forward = layers(&device);
        let graph = Graph::capture(input(0.1, &device), &forward).unwrap();
        let [replayed, launched] =
            [graph.replay(input(0.2, &device)), forward(input(0.2, &device))].map(Result::unwrap);
        assert_eq!(values(replayed), values(launched));
    }
}

#[test]
fn what_reads_a_result_is_not_recorded() {
    for device in gpus() {
        let reads = |x: Tensor<3>| {
            let sum: f32 = x.clone().sum().into_data().iter::<f32>().sum();
            Ok::<_, KernelError>(x * sum)
        };
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            Graph::capture(input(0.1, &device), reads).map(|_| ())
        }));
        assert!(!matches!(caught, Ok(Ok(()))), "{device:?}");
        // Neither way leaves the device recording.
        let forward = layers(&device);
        let launched = forward(input(0.2, &device)).unwrap();
        let graph = Graph::capture(input(0.1, &device), &forward).unwrap();
        assert_eq!(values(graph.replay(input(0.2, &device)).unwrap()), values(launched));
    }
}

#[test]
fn another_input_is_an_error() {
    for device in gpus() {
        let graph = Graph::capture(input(0.1, &device), layers(&device)).unwrap();
        let error = graph.replay(Tensor::zeros([2, 7, 13], &device)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Graph: `input` has shape [2, 7, 13], expected [2, 7, 12], as recorded"
        );
        let wrong = [
            (Device::flex(), "the graph was recorded on another device"),
            (device.clone().autodiff(), "gradients are tracked"),
        ];
        for (elsewhere, why) in wrong {
            let error = graph.replay(input(0.1, &elsewhere)).unwrap_err().to_string();
            assert!(error.ends_with(why), "{error}");
        }
    }
}

#[test]
fn a_result_on_another_device_is_an_error() {
    for device in gpus() {
        let away =
            |x: Tensor<3>| Ok::<_, KernelError>(Tensor::<3>::zeros(x.dims(), &Device::flex()));
        let error = Graph::capture(input(0.1, &device), away).map(|_| ()).unwrap_err();
        assert!(error.to_string().ends_with("the result is not where the input is"), "{error}");
    }
}

#[test]
fn one_graph_is_recorded_at_a_time() {
    for device in gpus() {
        let forward = layers(&device);
        let within = |x: Tensor<3>| {
            let error = Graph::capture(x.clone(), &forward).map(|_| ()).unwrap_err().to_string();
            assert!(error.ends_with("another graph is being recorded"), "{error}");
            forward(x)
        };
        let graph = Graph::capture(input(0.1, &device), within).unwrap();
        let [replayed, launched] =
            [graph.replay(input(0.2, &device)), forward(input(0.2, &device))].map(Result::unwrap);
        assert_eq!(values(replayed), values(launched));
    }
}

#[test]
fn a_device_that_records_nothing_says_so() {
    let device = Device::flex();
    assert!(has_kernel(&device));
    let error = Graph::capture(input(0.1, &device), layers(&device)).map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "the CPU replays no graph: its backend records no launches");
    for device in gpus() {
        let device = device.autodiff();
        let error = Graph::capture(input(0.1, &device), layers(&device)).map(|_| ()).unwrap_err();
        assert!(error.to_string().ends_with("gradients are tracked"), "{error}");
    }
}

/// Weights that are changed in place between replays, an input and draws that are written anew.
#[test]
#[expect(unsafe_code, reason = "what was recorded names memory")]
fn recorded_launches_see_what_is_written_where_they_read() {
    for device in gpus() {
        let weight = in_own_buffer(&tensor(&numbers(12 * 4, 0.3), [12, 4], &device));
        let pass = |x: Tensor<3>, seed: u64| -> Result<Tensor<3>, KernelError> {
            let factors = drawn(seed, [2, 1, 1], &device, |seed| vec![seed as f32, 0.5]);
            let more = drawn(seed, [7, 12], &device, |seed| vec![1.0 / (seed + 1) as f32; 7 * 12]);
            linear(x * factors + more.unsqueeze(), weight.clone(), None, Precision::F32)
        };
        let warm_up = WarmUp::begin(&device).unwrap();
        pass(input(0.1, &device), 1).unwrap();
        let (mut draws, y) = Draws::collect(|| pass(input(0.1, &device), 2).unwrap());
        device.sync().unwrap();
        drop(y);
        let held = in_own_buffer(&input(0.1, &device));
        let (launches, y) = warm_up.record(&[], || draws.read(|| pass(held.clone(), 3))).unwrap();
        for (seed, step) in [(4, 0.2), (5, 0.3)] {
            let new = tensor(&numbers(12 * 4, step), [12, 4], &device);
            overwrite(&weight, new).unwrap();
            overwrite(&held, input(step, &device)).unwrap();
            draws.renew(seed).unwrap();
            // SAFETY: all of these live.
            unsafe { launches.replay() }.unwrap();
            let launched = pass(input(step, &device), seed).unwrap();
            assert_eq!(values(y.clone()), values(launched), "{device:?} {seed}");
        }
        let error = overwrite(&held, Tensor::zeros([2, 7, 11], &device)).unwrap_err();
        assert!(error.to_string().ends_with("expected [2, 7, 12], as recorded"), "{error}");
    }
}

/// A recording that fails leaves what its launches would have changed as it was.
#[test]
fn what_a_failed_recording_changes_in_place_is_as_before() {
    for device in gpus() {
        let state = in_own_buffer(&tensor(&numbers(12, 0.3), [12], &device));
        let other = || tensor(&numbers(12, 0.4), [12], &device);
        let warm_up = WarmUp::begin(&device).unwrap();
        let failed = warm_up.record(std::slice::from_ref(&state), || {
            overwrite(&state, other())?;
            Err::<(), _>(overwrite(&state, Tensor::zeros([1], &device)).unwrap_err())
        });
        assert!(matches!(failed, Err(KernelError::Shape { .. })), "{failed:?}");
        assert_eq!(values(state.clone()), numbers(12, 0.3), "{device:?}");
        overwrite(&state, other()).unwrap();
        assert_eq!(values(state), numbers(12, 0.4), "{device:?}");
    }
}

/// A recorded run that asks for more memory than those before it left.
#[test]
fn a_run_that_finds_no_room_is_launched_as_before() {
    for device in gpus() {
        let forward = layers(&device);
        let big = |step| {
            let numbers = tensor(&numbers(2000 * 700 * 12, step), [2000, 700, 12], &device);
            (forward)(numbers)
        };
        let small = |step| (forward)(input(step, &device));
        let warm_up = WarmUp::begin(&device).unwrap();
        let before = values(small(0.1).unwrap());
        let held = in_own_buffer(&input(0.1, &device));
        let recorded = warm_up.record(&[], || (forward)(held.clone()).and_then(|_| big(0.1)));
        let error = recorded.map(|_| ()).unwrap_err();
        assert!(matches!(error, KernelError::NoGraph { .. }), "{error}");
        assert_eq!(values(small(0.1).unwrap()), before);
        assert_eq!(values((forward)(held).unwrap()), before);
        assert_eq!(values(big(0.1).unwrap()).len(), 2000 * 700 * 5);
    }
}
