#!lua flags=allow-oom
-- Take credit out of this partition for another: up to `most` of what is free, whosever of a pool's, or of the
-- node's own, it is, or of one subscriber's, or of those that `whom` names; with
-- `recall` all of that, and what is in use ends with its locks.
-- KEYS: meta inflight held subscribers turns resting shares selectors
-- ARGV: now revision number | subid most recall pool whom
-- RETURNS: ok stale gone deleted | ok
-- WRITES: subscribers turns resting shares
--- @include partition allotments
local refusal = partition.load()
if refusal then return refusal end
local results = {}
for i, row in ipairs(rows) do
  local subscriber = row.subid ~= '' and subscriptions.get(row.subid)
  local gifts = row.subid == '' and allotments.gather('', tonumber(row.most), row.pool, row.whom) or {}
  if subscriber then
    local amount, born
    if row.recall ~= '' then
      amount, born = allotments.recall(subscriber)
    else
      amount, born = allotments.withdraw(subscriber, tonumber(row.most))
    end
    gifts = amount > 0 and {{'', row.subid, born, amount, row.pool}} or {}
  end
  results[i] = {'ok', gifts}
end
return {'ok', results, {}, {}, {}, 0, 0, partition.token}
