"""A model loads whole from its directory; test_bad_input has the directories that are refused."""

from torch.testing import assert_close

from ppo.model.pretrained import load_lm


def test_load_lm_from_a_directory(lm, tokenizer, tmp_path):
    lm.save_pretrained(tmp_path / "m")
    tokenizer.save_pretrained(tmp_path / "m")
    loaded, loaded_tokenizer, ends = load_lm(str(tmp_path / "m"), "cpu")
    assert ends == {0}
    assert_close(loaded.model.embed_tokens.weight, lm.model.embed_tokens.weight)
