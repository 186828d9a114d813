-- Takes items of another priority than usual out of `ranked`.
-- NEEDS: ranked
-- LAZY: where publishers ask for something
--- @include partition positions ordering ranks taking
local ranked = {}

-- Those of some ranks.
function ranked.take(count, taken, first, last)
  while count > 0 and ordering.skipped < ordering.MOST do
    local out = redis.call('ZRANGEBYSCORE', key.ranked, first, last, 'WITHSCORES', 'LIMIT', 0, count)
    for i = 1, #out, 2 do
      redis.call('ZADD', key.ranked, out[i + 1] + ranks.AWAY, out[i])
      count = count - taking.add(positions.unpadded(out[i]), taken)
    end
    if #out == 0 then return end
  end
end
