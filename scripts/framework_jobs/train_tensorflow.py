"""TensorFlow's MultiWorkerMirroredStrategy with CheckpointManager; workers but the first save elsewhere."""

import json
import os
import tempfile
import time

import tensorflow as tf
from loop import DELAY_S, RATE, STEPS, Rank, checkpoints, resume


def main() -> None:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    place = json.loads(os.environ["TF_CONFIG"])
    rank, world = place["task"]["index"], len(place["cluster"]["worker"])
    me = Rank(rank, strategy.num_replicas_in_sync)
    with strategy.scope():
        weights = tf.Variable(tf.zeros([16, 1]))
        done = tf.Variable(0, dtype=tf.int64)
        last_loss = tf.Variable(0.0)
    truth = tf.reshape(tf.range(16, dtype=tf.float32) / 16, [16, 1])

    def told(x: tf.Tensor, asked: float) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weights - x @ truth) ** 2)
        slope = tf.reshape(tape.gradient(loss, weights), [16])
        return tf.concat([slope, [loss, asked]], axis=0)

    # Eagerly: within a graph a value of the only local replica has no device to be reduced to.
    def mean_of(x: tf.Tensor) -> tf.Tensor:
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, strategy.run(told, (x, float(me.asked))), axis=None)

    saved = tf.train.Checkpoint(weights=weights, done=done, loss=last_loss)
    where = str(checkpoints()) if rank == 0 else tempfile.mkdtemp()
    manager = tf.train.CheckpointManager(saved, where, max_to_keep=3)
    begun, path = 0, resume()
    if path is not None:
        saved.restore(str(path).removesuffix(".index")).assert_consumed()
        begun = int(done.numpy())
        me.resumes(path, begun, float(last_loss.numpy()))
    assert world == me.world
    for step in range(begun + 1, STEPS + 1):
        x = tf.random.stateless_normal([64, 16], seed=[step, rank])
        means = mean_of(x)
        weights.assign_sub(RATE * tf.reshape(means[:16], [16, 1]))
        mean, asked = float(means[16]), float(means[17])
        last = asked > 0 or step == STEPS
        me.stepped(step, mean, last)
        if last:
            done.assign(step)
            last_loss.assign(mean)
            manager.save(checkpoint_number=step)
        if asked > 0:
            break
        time.sleep(DELAY_S)


if __name__ == "__main__":
    main()
