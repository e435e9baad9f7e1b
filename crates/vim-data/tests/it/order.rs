//! The order of an epoch. `check_golden` compares reference orders with the originals'.

use std::collections::BTreeMap;

use vim_data::{Draw, Order, OrderKey, OrderKind, Recipe};

fn keyed(images: usize, repeats: u32, seed: u64, epoch: u64, world: usize) -> Order {
    Order::new(images, OrderKey { kind: OrderKind::Keyed, repeats, seed, epoch, world }).unwrap()
}

fn all(order: &Order, draws: usize) -> Vec<Draw> {
    (0..draws).map(|position| order.draw(position)).collect()
}

#[test]
fn once_each_without_repeats() {
    let mut positions: Vec<usize> =
        all(&keyed(1000, 1, 5, 2, 1), 1000).iter().map(|draw| draw.position).collect();
    assert!(!positions.is_sorted());
    positions.sort_unstable();
    assert!(positions.into_iter().eq(0..1000));
}

#[test]
fn repeats_come_in_a_row_and_fill_an_epoch() {
    let order = keyed(1000, 3, 5, 2, 1);
    assert_eq!(order.draws_per_rank(), 1000);
    let draws = all(&order, 1000);
    let mut seen: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
    for three in draws.chunks(3) {
        assert!(three.iter().all(|draw| draw.position == three[0].position));
        seen.entry(three[0].position).or_default().extend(three.iter().map(|draw| draw.repeat));
    }
    assert_eq!(seen.len(), 334, "a third of the images, and the first draw of one more");
    assert_eq!(seen.values().filter(|repeats| repeats[..] == [0, 1, 2]).count(), 333);
}

#[test]
fn devices_share_the_batch_that_one_would_have() {
    for repeats in [1, 3] {
        let alone = keyed(1003, repeats, 1, 0, 1);
        for world in [2, 4] {
            let shared = keyed(1003, repeats, 1, 0, world);
            let batch = 8 / world;
            assert_eq!(shared.steps(batch), alone.steps(8));
            for step in [0, 1, 7, shared.steps(batch) - 1] {
                let of = |order: &Order, batch, rank| -> Vec<Draw> {
                    (0..batch)
                        .map(|slot| order.draw(order.position(step, batch, rank, slot)))
                        .collect()
                };
                let together = of(&alone, 8, 0);
                for rank in 0..world {
                    let every: Vec<Draw> =
                        together.iter().skip(rank).step_by(world).copied().collect();
                    assert_eq!(of(&shared, batch, rank), every, "{rank} of {world}");
                }
            }
        }
    }
}

#[test]
fn seed_and_epoch_matter_to_keyed_orders_alone() {
    let first = |kind, seed, epoch| {
        let key = OrderKey { kind, repeats: 1, seed, epoch, world: 1 };
        all(&Order::new(500, key).unwrap(), 500)
    };
    let (own, reference) = (OrderKind::Keyed, OrderKind::Reference);
    assert_eq!(first(own, 1, 2), first(own, 1, 2));
    assert_ne!(first(own, 1, 2), first(own, 2, 2));
    assert_ne!(first(own, 1, 2), first(own, 1, 3));
    assert_eq!(first(reference, 1, 2), first(reference, 2, 2));
    assert_ne!(first(reference, 1, 2), first(reference, 1, 3));
}

#[test]
fn a_recipe_knows_its_order() {
    let recipe = Recipe { repeats: 2, order: OrderKind::Reference, ..Recipe::default() };
    let key = recipe.order_key(1, 2, 4);
    let expected = OrderKey { kind: OrderKind::Reference, repeats: 2, seed: 1, epoch: 2, world: 4 };
    assert_eq!(key, expected);
}

#[test]
fn more_images_than_torch_counts_are_refused() {
    let key = OrderKey { kind: OrderKind::Reference, repeats: 1, seed: 0, epoch: 0, world: 1 };
    let message = Order::new(1 << 28, key).unwrap_err().to_string();
    assert!(message.contains("augment.order") && message.contains("214748364"), "{message}");
}
