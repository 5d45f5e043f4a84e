use super::*;

fn table(seed: u8) -> ProfileTable {
    ProfileTable::derive(&kdf::extract(&[seed], b"secret"), &[b"test"])
}

#[test]
fn every_profile_owns_four_ids_and_half_are_decoys() {
    let table = table(0);
    let mut owned = [0; 256];
    for number in 0..Profile::COUNT {
        for pick in 0..=255 {
            let id = table.alias(Profile(number), pick);
            assert_eq!(table.lookup(id), Some(Profile(number)));
            assert_eq!(id, table.alias(Profile(number), pick % 4));
            owned[usize::from(id.0)] += 1;
        }
    }
    assert_eq!(owned.iter().filter(|&&times| times == 64).count(), 128, "no ID has two owners");
    for id in 0..=255 {
        let decoy = table.lookup(ProfileId(id)).is_none();
        assert_eq!(decoy, owned[usize::from(id)] == 0);
    }
}

/// Where a value lands must not depend on the value: over 2,000 tables each of the 256 IDs should
/// be profile 0's first alias about 7.8 times. The sum of squared deviations follows chi-square
/// with 255 degrees of freedom: mean 255, standard deviation 22.6.
#[test]
fn the_permutation_is_not_skewed() {
    const TABLES: u32 = 2_000;
    let mut counts = [0u32; 256];
    for seed in 0..TABLES {
        let prk = kdf::extract(&seed.to_be_bytes(), b"secret");
        let ProfileId(id) = ProfileTable::derive(&prk, &[b"test"]).alias(Profile(0), 0);
        counts[usize::from(id)] += 1;
    }
    let expected = f64::from(TABLES) / 256.0;
    let chi: f64 = counts.iter().map(|&n| (f64::from(n) - expected).powi(2) / expected).sum();
    assert!((142.0..368.0).contains(&chi), "chi-square {chi:.1} is five deviations off");
}

#[test]
fn a_profile_is_the_suite_of_its_number() {
    for suite in Suite::ALL {
        assert_eq!(Profile::whole(suite).suite(), Some(suite));
        assert_eq!(Profile::whole(suite).number(), suite as u8);
    }
    assert!((3..Profile::COUNT).all(|number| Profile(number).suite().is_none()));
}
